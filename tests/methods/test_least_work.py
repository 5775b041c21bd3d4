"""No more is computed than a method needs, and what is left out is not missed."""

from __future__ import annotations

import resource
import subprocess
import sys

import numpy as np
import pytest
import torch

from oodshape import METHODS, Features, InputError
from oodshape.features import features as features_module
from oodshape.features.statistics import FeatureStats, RunningStatistics
from oodshape.methods import slots
from oodshape.methods.detector import PARTS
from oodshape.networks.head import Head

WIDTH, CLASSES = 24, 6
MEAN_ONLY = ("nci", "fdbd", "ora", "dice")
MOMENTS_ONLY = ("knn", "nnguide", "vim", "neco", "she", "klm", "mds++", "ras")


def some(rows: int = 60, *, half: bool = False) -> Features:
    rng = np.random.default_rng(0)
    z = np.maximum(rng.normal(size=(rows, WIDTH)), 0).astype(np.float16 if half else np.float32)
    head = rng.normal(size=(CLASSES, WIDTH)).astype(np.float32), rng.normal(size=CLASSES).astype(np.float32)
    return Features.from_arrays(z, head, predictions=np.arange(rows) % CLASSES)


def none(*_: object, **__: object) -> None:
    raise AssertionError("not needed")


@pytest.mark.parametrize("name", [*MEAN_ONLY, *MOMENTS_ONLY])
def test_no_histogram_is_made_for_a_method_that_reads_none(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = some()
    assert known.stats.n == len(known)
    wanted = METHODS[name].fit(known).score(known)
    for kind, method in ((FeatureStats, "of"), (RunningStatistics, "__init__")):
        monkeypatch.setattr(kind, method, none)
    found = METHODS[name].fit(some()).score(some())
    torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("half", [False, True])
def test_sums_are_those_of_the_statistics(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features_module, "CHUNK_BYTES", 4 * WIDTH * 7)
    data = some(half=half)
    wanted = data._values.astype(np.float64).sum(axis=0)
    np.testing.assert_allclose(data.sums, wanted, rtol=1e-12)
    np.testing.assert_allclose(some(half=half).stats.sums, wanted, rtol=1e-12)
    on_the_way = some(half=half)
    on_the_way.moments(frozenset(["second"]), stats=False)
    monkeypatch.setattr(Features, "chunks", none)
    np.testing.assert_allclose(on_the_way.sums, wanted, rtol=1e-12)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", MEAN_ONLY)
def test_a_mean_refuses_what_is_no_number(name: str, bad: float) -> None:
    data = some()
    data._values[17, 3] = bad
    with pytest.raises(InputError, match="row 17 of the features holds a NaN or infinite value"):
        METHODS[name].fit(data)


def test_finite_features_are_not_looked_at_again_where_logits_show_it(monkeypatch: pytest.MonkeyPatch) -> None:
    fitted = {name: METHODS[name].fit(some()) for name in ("energy", "msp", "mls", "nci", "fdbd", "she", "vim")}
    data = Features.from_arrays(some()._values, some().head)
    monkeypatch.setattr(slots, "check_finite", none)
    for name, detector in fitted.items():
        assert torch.isfinite(detector.score(data)).all(), name
    with pytest.raises(AssertionError):
        METHODS["react"].fit(some()).score(data)  # clips, and could hide an infinite feature


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("weight", [0.0, 1.0])
@pytest.mark.parametrize("name", ["energy", "mls", "nci"])
def test_what_is_no_number_shows_in_the_first_logit(
    name: str, weight: float, bad: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(features_module, "CHUNK_BYTES", 4 * WIDTH * 20 * PARTS)
    train = some()
    weights = train.head.weight.clone()
    weights[:, 5] = weight
    head = Head.of((weights, train.head.bias))
    values = train._values.copy()
    detector = METHODS[name].fit(Features.from_arrays(values, head))
    values[41, 5] = bad
    with pytest.raises(InputError, match="row 41 of the features holds a NaN or infinite value"):
        detector.score(Features.from_arrays(values, head))


def test_logits_too_large_for_a_number_are_those_of_finite_features() -> None:
    train = some()
    detector = METHODS["energy"].fit(train)
    values = train._values * np.float32(1e38)
    with pytest.raises(InputError, match="features are too large"):
        detector.score(Features.from_arrays(values, train.head))


def test_classes_of_the_same_weights_have_no_boundary_between_them() -> None:
    weight = torch.tensor([[3.0, 4.0], [3.0, 4.0], [0.0, 0.0]])
    wanted = torch.tensor([[0.0, 0.0, 0.2], [0.0, 0.0, 0.2], [0.2, 0.2, 0.0]])
    torch.testing.assert_close(Head.of((weight, None)).closeness, wanted)


FAULTS = """
import sys, resource
import numpy as np
from oodshape.core.machine import keep_freed
if sys.argv[1] == "kept":
    keep_freed(16 << 20)
def several():
    return [np.ones(1 << 20, np.float32) for _ in range(4)]
several(), several()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    several()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not hasattr(resource, "RUSAGE_SELF") or sys.platform != "linux", reason="a habit of glibc")
def test_freed_memory_is_kept_for_the_next_batch() -> None:
    run = [sys.executable, "-c", FAULTS]
    plain, kept = (int(subprocess.check_output([*run, how], text=True)) for how in ("plain", "kept"))
    assert plain > 5 * kept  # the first of them still come from the system
