"""The benchmarks can be imported, and their ratios are those of the rounds."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from oodshape import Classifier
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.networks.zoo import build

BENCHES = Path(__file__).parents[2] / "benches"
FILES = sorted(path.name for path in BENCHES.glob("*.py"))


@pytest.fixture(autouse=True)
def beside(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHES))
    yield
    sys.modules.pop("harness", None)


@pytest.mark.parametrize("name", FILES)
def test_every_benchmark_imports(name: str) -> None:
    names = runpy.run_path(str(BENCHES / name), run_name="imported")
    assert name in ("harness.py", "pairs.py") or callable(names["main"])


def test_a_ratio_is_taken_within_each_round() -> None:
    import harness

    # the machine is ten times slower in two rounds of five: no ratio sees it
    busy = np.array([1.0, 10.0, 1.0, 10.0, 1.0])
    rounds = harness.Rounds({"a": np.stack([3 * busy, busy], 1), "b": np.stack([busy, 2 * busy], 1)})
    assert rounds.ratio("a", "b") == harness.Ratio(3.0, 3.0, 3.0)
    assert rounds.ratio("a", "b", cpu=True) == harness.Ratio(0.5, 0.5, 0.5)


def test_decoding_is_measured_beside_the_network() -> None:
    decode = runpy.run_path(str(BENCHES / "decode.py"), run_name="imported")
    speed = decode["report"](Classifier(build("digits-convnet")), digits_sets()["test"], DIGITS, 1)
    assert all(speed[name] > 0 for name in ("decoding", "network", "both"))
