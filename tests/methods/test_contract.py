"""Laws that hold for every row of the table of methods: alone, together, in threads, with values that are none."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as array_strategy

import oodshape
from data import CALLERS, arrays, features, proxy
from oodshape import METHODS, Detector, Features, InputError, Outputs
from oodshape.methods.auto import CANDIDATES
from oodshape.methods.fit_all import fit_all, fit_each, score_each
from oodshape.methods.fusion import Fusion
from oodshape.methods.records import import_method_types
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.networks.head import Head
from oracle.paper_methods import naive_scores

NAMES = list(METHODS)
import_method_types()
SIGNED = [False, True]


@pytest.fixture(scope="module", params=SIGNED, ids=["relu", "signed"])
def fitted(request: pytest.FixtureRequest) -> tuple[bool, dict[str, Detector]]:
    train = features(400, half=True, signed=request.param)
    return request.param, fit_all(METHODS, train, [proxy(signed=request.param)])


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


@pytest.mark.parametrize("caller", CALLERS)
def test_settings_of_the_caller_change_no_score(fitted: tuple[bool, dict[str, Detector]], caller) -> None:
    some = ("ash-b", "dice", "knn", "mds++", "optfs-e", "ras", "react", "vim")
    train, new = (features(rows, half=True, signed=fitted[0]) for rows in (400, 50))
    with caller():
        found = score_each(fit_all({name: METHODS[name] for name in some}, train), new)
    for name in some:
        torch.testing.assert_close(found[name], fitted[1][name].score(new), rtol=1e-4, atol=1e-4)


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


@pytest.mark.parametrize("name", ["nci", "fdbd", "ora", "dice"])
def test_a_mean_refuses_what_is_no_number(name: str) -> None:
    z, head = arrays(60)
    z[17, 3] = np.nan
    with pytest.raises(InputError, match="row 17 of the features holds a NaN or infinite value"):
        METHODS[name].fit(Features.from_arrays(z, head, predictions=np.arange(60) % 7))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("name", ["energy", "mls", "nci"])
def test_what_is_no_number_is_refused_whatever_its_weight(name: str, weight: float, bad: float) -> None:
    z, head = arrays(60)
    head[0][:, 5] = weight
    detector = METHODS[name].fit(Features.from_arrays(z.copy(), head))
    z[41, 5] = bad
    with pytest.raises(InputError, match="row 41 of the features holds a NaN or infinite value"):
        detector.score(Features.from_arrays(z, head))


def test_logits_too_large_for_a_number_are_those_of_finite_features() -> None:
    z, head = arrays(60)
    detector = METHODS["energy"].fit(Features.from_arrays(z, head))
    with pytest.raises(InputError, match="features are too large"):
        detector.score(Features.from_arrays(z * np.float32(5e37), head))


def test_classes_of_the_same_weights_have_no_boundary_between_them() -> None:
    weight = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]])
    wanted = torch.tensor([[0.0, 0.0, 0.2], [0.0, 0.0, 0.2], [0.2, 0.2, 0.0]])
    torch.testing.assert_close(Head.of((weight, None)).closeness, wanted)


BOUND = 1e-5  # of the largest score


@pytest.mark.usefixtures("one_thread")
@pytest.mark.parametrize("name", ["vim", "mds++", "energy", "auto"])
def test_scores_of_one_and_of_four_threads_are_within_the_bound(name: str) -> None:
    z, head = arrays(600, width=128, classes=10)
    test = Features.from_arrays(arrays(200, width=128, classes=10, seed=1)[0], head)
    proxy = Features.from_arrays(np.random.default_rng(0).permuted(z[:200], axis=1), head)
    found, chosen = [], []
    for count in (1, 4):
        torch.set_num_threads(count)
        detector = METHODS[name].fit(Features.from_arrays(z, head), proxy=[proxy])
        found.append(detector.score(test).numpy())
        if isinstance(detector.scorer, Fusion):
            chosen.append([component.name for component in detector.scorer.components])
    assert np.abs(found[0] - found[1]).max() <= BOUND * np.abs(found[0]).max()
    assert all(names == chosen[0] for names in chosen)


SINGLE = {name: METHODS[name] for name in CANDIDATES}


def test_scores_together_are_those_of_each_alone() -> None:
    train, test = features(400), features(100, seed=1)
    fitted = fit_all(SINGLE, train)
    assert list(fitted) == list(SINGLE)
    found = score_each(fitted, test)
    for name, detector in fitted.items():
        torch.testing.assert_close(found[name], detector.score(test), rtol=1e-5, atol=1e-5)


def test_one_that_refuses_leaves_the_others_alone() -> None:
    data = features(300)
    negative = Features.from_arrays(-next(iter(data.chunks()))[1].numpy() - 1, (data.head.weight, data.head.bias))
    found = dict(fit_each({"bfact": METHODS["bfact"], "energy": METHODS["energy"]}, negative))
    assert isinstance(found["bfact"], InputError)
    assert not isinstance(found["energy"], InputError)
    with pytest.raises(InputError):
        fit_all({"bfact": METHODS["bfact"]}, negative)
