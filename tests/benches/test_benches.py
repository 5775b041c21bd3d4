"""The benchmarks can be imported, and their ratios are those of the rounds."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import numpy as np
import pytest

from oodshape import Classifier
from oodshape.images.digits import digits_sets
from oodshape.images.preprocessing import DIGITS
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


def test_every_task_runs_once_per_round_and_once_before() -> None:
    import harness

    seen: list[str] = []
    rounds = harness.timed({"a": lambda: seen.append("a"), "b": lambda: seen.append("b")}, rounds=2)
    assert "".join(seen) == "ab" + "ab" + "ba"
    assert rounds.seconds["a"].shape == (2, 2)


def test_a_limit_is_kept_or_missed(capsys: pytest.CaptureFixture[str]) -> None:
    import harness

    assert harness.check("fast", harness.Ratio(2.0, 1.9, 2.1), 3)
    assert not harness.check("slow", harness.Ratio(2.0, 1.9, 2.1), 3, at_least=True)
    assert [line.split()[-1] for line in capsys.readouterr().out.splitlines()] == ["ok", "MISSED"]


def test_decoding_is_measured_beside_the_network() -> None:
    decode = runpy.run_path(str(BENCHES / "decode.py"), run_name="imported")
    speed = decode["report"](Classifier(build("digits-convnet")), digits_sets()["test"], DIGITS, 1)
    assert all(speed[name] > 0 for name in ("decoding", "network", "both"))
