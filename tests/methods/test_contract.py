"""Laws that hold for every row of the table of methods."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as array_strategy

import oodshape
from data import arrays, features, proxy
from oodshape import METHODS, Detector, Features, Outputs
from oodshape.core.values import Value
from oodshape.methods.fit_all import fit_all
from oodshape.methods.records import RECORDS, import_types
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oracle.newer_methods import NEWER
from oracle.paper_methods import naive_scores

NAMES = list(METHODS)
import_types()
NAMESPACE = {name: kind for name, kind in Value.known.items() if ":" not in name}  # every type of the package
SIGNED = [False, True]


@pytest.fixture(scope="module", params=SIGNED, ids=["relu", "signed"])
def fitted(request: pytest.FixtureRequest) -> tuple[bool, dict[str, Detector]]:
    train = features(400, half=True, signed=request.param)
    return request.param, fit_all(METHODS, train, [proxy(signed=request.param)])


def test_the_table_has_every_method_of_the_paper() -> None:
    paper = ["msp", "mls", "energy", "odin", "dice", "react", "bfact", "ash-p", "ash-b", "ash-s", "ash-rand", "vra-p"]
    ours = ["optfs-v", "optfs-e", "optfs-msp", "optfs-mls", "optfs-e+dice", "optfs-e+react"]
    assert [*paper, *ours, *NEWER, "auto"] == NAMES
    for id_set in ("imagenet", "cifar10", "cifar100"):
        assert list(oodshape.paper_methods(id_set)) == NAMES


@pytest.mark.parametrize("name", RECORDS)
def test_every_record_is_complete(name: str) -> None:
    record = RECORDS[name]
    for field in ("name", "summary", "needs", "fails", "citation"):
        words = getattr(record, field)
        assert words, f"the record of {name} has no {field}"
        assert words == words.strip()
        assert words.endswith(".") == (field == "citation")  # the others stand inside lists and sentences


@pytest.mark.parametrize("name", [name for name in NAMES if not METHODS[name].wants_proxy])
def test_scores_are_those_of_the_naive_formula(name: str, fitted: tuple[bool, dict[str, Detector]]) -> None:
    signed, detectors = fitted
    train, head = arrays(400, signed=signed)
    z = arrays(120, signed=signed, seed=1)[0].astype(np.float16)
    # of equal values at ASH's limit, which are kept is topk's choice: leave such rows out
    distinct = [len(np.unique(row[row != 0])) == (row != 0).sum() > 20 for row in z]
    z = z[np.array(distinct)]
    assert len(z) > 40
    train = train.astype(np.float16)
    got = detectors[name].score(Features.from_arrays(z, head)).numpy()
    wanted = naive_scores(name, train, z, *head)
    scale = np.ptp(wanted)  # the spread is what ranks images: ODIN's whole range is a few millionths
    np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=2e-5 * scale + 1e-7)
    assert np.corrcoef(got, wanted)[0, 1] > 0.9999


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=15)
@given(data=st.data())
def test_laws(name: str, fitted: tuple[bool, dict[str, Detector]], data: st.DataObject) -> None:
    signed, detectors = fitted
    detector = detectors[name]
    _, head = arrays(400, signed=signed)
    numbers = st.floats(-30 if signed else 0, 30, width=16)
    z = data.draw(array_strategy(np.float32, st.tuples(st.integers(2, 9), st.just(40)), elements=numbers))
    before = z.copy()
    score = detector.score(Features.from_arrays(z, head))
    assert np.array_equal(z, before)
    assert score.shape == (len(z),)
    assert score.dtype == torch.float32
    assert torch.isfinite(score).all()
    near = {"rtol": 1e-4, "atol": 1e-4 * max(1.0, float(score.abs().max()))}
    cut = data.draw(st.integers(1, len(z) - 1))
    parts = [detector.score(Features.from_arrays(part, head)) for part in (z[:cut], z[cut:])]
    torch.testing.assert_close(torch.cat(parts), score, **near)
    order = np.array(data.draw(st.permutations(range(len(z)))))
    permuted = detector.score(Features.from_arrays(z[order], head))
    torch.testing.assert_close(permuted, score[torch.from_numpy(order)], **near)


@pytest.mark.parametrize("name", NAMES)
def test_the_compiled_path_is_the_torch_path(
    name: str, fitted: tuple[bool, dict[str, Detector]], monkeypatch: pytest.MonkeyPatch
) -> None:
    signed, detectors = fitted
    test = features(200, signed=signed, seed=6)
    compiled = detectors[name].score(test)
    monkeypatch.setattr(PiecewiseConstant, "compiled", lambda self, z: False)
    for kernel in ("scale_by_theta", "frozen_logits"):
        monkeypatch.delattr(f"oodshape.features.kernels.{kernel}")  # not even by accident
    torch.testing.assert_close(detectors[name].score(test), compiled, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("name", NAMES)
def test_saved_and_loaded_is_equal(name: str, fitted: tuple[bool, dict[str, Detector]], tmp_path) -> None:
    signed, detectors = fitted
    test = features(50, signed=signed, seed=2)
    detector = detectors[name].calibrate(features(200, signed=signed, seed=3))
    detector.save(tmp_path / "guard.safetensors")
    loaded = Detector.load(tmp_path / "guard.safetensors")
    assert loaded == detector
    assert hash(loaded) == hash(detector)
    assert loaded.method == METHODS[name]
    for mine, theirs in zip(loaded.decide(test), detector.decide(test), strict=True):
        assert torch.equal(mine, theirs)
    assert [path.name for path in tmp_path.iterdir()] == ["guard.safetensors"]


@pytest.mark.parametrize("name", NAMES)
def test_repr_makes_the_recipe_again(name: str) -> None:
    for method in (METHODS[name], oodshape.paper_methods("cifar10")[name]):
        again = eval(repr(method), NAMESPACE)
        assert again == method
        assert hash(again) == hash(method)


def test_no_two_methods_score_alike(fitted: tuple[bool, dict[str, Detector]]) -> None:
    signed, detectors = fitted
    test = features(200, signed=signed, seed=4)
    ranks = {name: tuple(detector.score(test).argsort().tolist()) for name, detector in detectors.items()}
    assert ranks.pop("optfs") == ranks["optfs-f" if signed else "optfs-e"]  # by its definition
    assert ranks.pop("temperature") == ranks["msp"]  # without labels
    assert len(set(ranks.values())) == len(ranks)


@pytest.mark.parametrize("name", NAMES)
def test_outputs_score_like_features(name: str, fitted: tuple[bool, dict[str, Detector]]) -> None:
    signed, detectors = fitted
    test = features(30, signed=signed, seed=5)
    (_, z), *_ = test.chunks()
    score = detectors[name].score(Outputs(z, test.head.logits(z), test.head))
    torch.testing.assert_close(score, detectors[name].score(test), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", NAMES)
def test_other_heads_are_refused(name: str, fitted: tuple[bool, dict[str, Detector]]) -> None:
    signed, detectors = fitted
    z, (weight, bias) = arrays(5, signed=signed)
    other = Features.from_arrays(z, (weight + 1, bias))
    with pytest.raises(oodshape.InputError, match=f"{detectors[name].fingerprint}.*{other.head.fingerprint}"):
        detectors[name].score(other)


@pytest.mark.parametrize("name", NAMES)
def test_bad_values_are_refused_with_their_row(name: str, fitted: tuple[bool, dict[str, Detector]]) -> None:
    signed, detectors = fitted
    for bad in (np.nan, np.inf, -np.inf):
        z, head = arrays(50, signed=signed)
        z[31, 7] = bad
        for known in (None, np.zeros(50, np.int64)):
            with pytest.raises(oodshape.InputError, match="row 31 of the features"):
                detectors[name].score(Features.from_arrays(z, head, predictions=known))


def test_bad_values_are_refused_in_a_fit() -> None:
    z, head = arrays(50)
    z[31, 7] = np.inf
    with pytest.raises(oodshape.InputError, match="row 31 of the features"):
        METHODS["optfs-e"].fit(Features.from_arrays(z, head))
