"""Watching a stream: false alarms stay below delta, shifts are found soon, and the state goes on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from data import features
from oodshape import METHODS, InputError, Watch
from oodshape.cli.app import app
from oodshape.metrics.sequential_test import RateTest


def conformal(rng: np.random.Generator, n: int, count: int, shift: float = 0.0) -> np.ndarray:
    """P-values of one calibration set, dependent through it: what a detector gives."""
    calibration = np.sort(rng.normal(size=n))
    return (1 + np.searchsorted(calibration, rng.normal(-shift, 1, size=count), side="right")) / (n + 1)


def test_false_alarms_stay_below_delta() -> None:
    rng, delta, runs = np.random.default_rng(0), 0.2, 250
    alarms = sum(
        Watch.begin(alpha=0.1, n_calibration=60, delta=delta).after(conformal(rng, 60, 600)).alarm for _ in range(runs)
    )
    assert alarms / runs <= delta
    # without the allowance for the calibration's luck, it would alarm far too often
    naive = sum(
        RateTest(allowed=0.1, delta=delta / 4).after(conformal(rng, 60, 600) <= 0.1).alarm is not None
        for _ in range(100)
    )
    assert naive / 100 > alarms / runs + 0.05


def test_a_shift_is_found_soon_and_dated() -> None:
    rng, delays, began = np.random.default_rng(2), [], []
    for _ in range(20):
        p = np.concatenate([rng.uniform(1e-3, 1, 3000), rng.uniform(1e-3, 1, 400) ** 3])  # 37 % below 0.05
        watch = Watch.begin(alpha=0.05, n_calibration=999).after(p)
        assert watch.rejection.alarm is not None
        delays.append(watch.rejection.alarm - 3000)
        began.append(watch.rejection.since)
    assert min(delays) > 0
    assert np.median(delays) < 60
    assert abs(np.median(began) - 3000) < 15


def test_sinking_scores_are_noticed_before_rejections() -> None:
    rng = np.random.default_rng(3)
    p = np.where(rng.random(1500) < 0.8, rng.uniform(0.06, 0.5, 1500), rng.uniform(0.5, 1, 1500))
    watch = Watch.begin(alpha=0.05, n_calibration=999).after(p)
    assert watch.rejection.hits == 0
    assert watch.rejection.alarm is None
    assert watch.middle.alarm is not None
    assert "ALARM" in str(watch)


def test_images_that_could_not_be_read_are_counted_apart(tmp_path: Path) -> None:
    begin = Watch.begin(alpha=0.05, n_calibration=99)
    watch = begin.after([0.5, None, 0.9, float("nan")])
    assert (watch.seen, watch.unreadable) == (2, 2)
    assert "2 of 4 images could not be read" in str(watch)
    assert "could not be read" not in str(begin.after([0.5]))
    watch.save(tmp_path / "state.safetensors")
    assert Watch.load(tmp_path / "state.safetensors").unreadable == 2


def test_rejected_is_what_the_detector_rejects() -> None:
    detector = METHODS["energy"].fit(features()).calibrate(features(99, seed=1))
    said = detector.decide(features(400, seed=2))
    rounded = np.round(said.p_values.numpy(), 4)  # as a file may hold them
    watch = Watch.begin(alpha=0.05, n_calibration=99).after(rounded)
    assert watch.rejection.hits == int((~said.accepted).sum())


def test_p_values_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match=r"lie in \(0, 1\], got 1.5 at place 2"):
        Watch.begin(alpha=0.05, n_calibration=99).after([0.5, 1.5])


def test_more_rejections_than_guaranteed_are_said_before_an_alarm() -> None:
    """10 % are rejected: more than 5 %, less than a calibration set of 99 images explains."""
    watch = Watch.begin(alpha=0.05, n_calibration=99).after(([0.01] + [0.6] * 9) * 200)
    assert not watch.alarm
    assert watch.rejection.interval()[0] > 0.05
    assert watch.rejection.rate < watch.rejection.allowed
    assert "no alarm yet: more is rejected than guaranteed, but up to 1" in str(watch)


def test_the_command(tmp_path: Path) -> None:
    runner, rng = CliRunner(), np.random.default_rng(6)
    detector = METHODS["energy"].fit(features()).calibrate(features(199, seed=1))
    guard, table, state = tmp_path / "guard.safetensors", tmp_path / "scores.csv", tmp_path / "state.safetensors"
    detector.save(guard)
    table.write_text("path,p_value\n")

    def run(p: np.ndarray, *more: str):
        with table.open("a") as file:
            file.write("".join(f"{i}.png,{value}\n" for i, value in enumerate(p)))
        return runner.invoke(app, ["watch", str(table), "--guard", str(guard), "--state", str(state), *more])

    quiet = run(conformal(rng, 199, 500))
    assert quiet.exit_code == 0, quiet.output
    assert "500 images" in quiet.output
    assert "no alarm; evidence " in quiet.output
    assert "guaranteed 5.00%" in quiet.output
    loud = run(conformal(rng, 199, 200, shift=2.0))
    assert loud.exit_code == 3
    assert "700 images" in loud.output
    assert "ALARM at image 5" in loud.output
    assert Watch.load(state).seen == 700
    piped = runner.invoke(
        app, ["watch", "-", "--alpha", "0.05", "--n-calibration", "99"], input="p_value\n" + "0.01\n" * 99
    )
    assert piped.exit_code == 3
    assert "99 images" not in piped.output  # it stops at the alarm
    METHODS["energy"].fit(features()).save(guard)
    begin = ("--alpha", "0.05", "--n-calibration", "99")
    for words, said in (
        ([str(table)], "--guard FILE, or --alpha and --n-calibration"),
        ([str(table), "--guard", str(guard)], "has no guarantee yet"),
        ([str(table), "--reset", *begin], "need --state"),
        (begin, "need --state"),
    ):
        with pytest.raises(InputError, match=said):
            runner.invoke(app, ["watch", *words], catch_exceptions=False)
