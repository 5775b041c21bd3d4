"""Thresholds, decisions, files."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from data import features
from oodshape import METHODS, Detector, InputError, Outputs

ENERGY = METHODS["energy"].fit(features())


def test_threshold_by_hand() -> None:
    # n = 39, alpha = 0.05: the floor(0.05 * 40) = 2nd smallest
    detector = ENERGY.calibrate(np.arange(39.0)[::-1].copy(), alpha=0.05)
    assert detector.threshold == 1.0
    assert ENERGY.calibrate(np.arange(19.0)).threshold == 0.0
    assert ENERGY.calibrate(np.arange(99.0), alpha=0.29).threshold == 28.0  # 0.29 * 100 is 28.999... in floats


@pytest.mark.parametrize(
    ("n", "alpha", "message"),
    [
        (18, 0.05, "alpha = 0.05 needs at least 19 held-out images, got 18"),
        (50, 0.01, "needs at least 99 "),
        (50, 5, "did you mean 0.05"),
    ],
)
def test_too_few_scores_say_how_many_are_needed(n: int, alpha: float, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ENERGY.calibrate(np.arange(float(n)), alpha=alpha)
    with pytest.raises(InputError, match="calibrate"):
        _ = ENERGY.threshold
    with pytest.raises(InputError, match="NaN"):
        ENERGY.calibrate(np.array([np.nan] * 50))


def test_decide_gives_class_score_p_value_and_verdict() -> None:
    detector, test = ENERGY.calibrate(features(200, seed=1)), features(30, seed=2)
    decision = detector.decide(test)
    assert torch.equal(decision.classes, test.predictions)
    assert torch.equal(decision.scores, detector.score(test))
    assert torch.equal(decision.accepted, decision.scores >= detector.threshold)
    (_, z), *_ = test.chunks()
    again = detector.decide(Outputs(z, test.head.logits(z), test.head))
    assert torch.equal(again.classes, decision.classes)
    assert torch.equal(again.accepted, decision.accepted)


def test_the_file_is_readable_json_and_tensors(tmp_path) -> None:
    from safetensors import safe_open

    detector = METHODS["optfs-e"].fit(features()).calibrate(np.arange(40.0)[::-1].copy())
    detector.save(tmp_path / "d.safetensors")
    with safe_open(tmp_path / "d.safetensors", framework="numpy") as file:
        header = json.loads(file.metadata()["oodshape"])
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    assert header["method"] == repr(METHODS["optfs-e"])
    assert header["head"] == features().head.fingerprint
    assert header["kind"] == "detector"
    assert np.array_equal(tensors["detector.calibration"], np.arange(40, dtype=np.float32))
    assert len(tensors["detector.shape.edges"]) == 101
    assert len(tensors["detector.shape.theta"]) == 100


def test_files_of_another_version_and_missing_ones_are_one_clear_error(tmp_path) -> None:
    path = tmp_path / "d.safetensors"
    ENERGY.save(path)
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'\\"format\\": 2', b'\\"format\\": 9'))
    with pytest.raises(InputError, match="upgrade oodshape"):
        Detector.load(path)
    with pytest.raises(InputError, match="there is no file"):
        Detector.load(tmp_path / "missing.safetensors")
    with pytest.raises(InputError, match="folder .* does not exist"):
        ENERGY.save(tmp_path / "no" / "where.safetensors")
