"""Images of a stream that cannot be read are counted, and a jump of their share is noticed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from oodshape import Watch
from oodshape.cli.app import app
from oodshape.guard.unreadable import Unreadable


def test_a_steady_share_never_jumps_more_often_than_delta() -> None:
    rng, delta, runs = np.random.default_rng(0), 0.2, 200
    jumps = [Unreadable().after(rng.random(2000) < 0.1, delta).jump for _ in range(runs)]
    assert np.mean([jump is not None for jump in jumps]) <= delta


def test_a_jump_is_found_and_dated() -> None:
    rng = np.random.default_rng(1)
    lost = np.concatenate([rng.random(3000) < 0.02, rng.random(200) < 0.4])
    assert Unreadable().after(lost).jump == 3001
    parts = Unreadable()
    for part in np.array_split(lost, 77):  # in pieces of any size: the same
        parts = parts.after(part)
    assert parts == Unreadable().after(lost)
    assert (parts.seen, parts.count) == (3200, int(lost.sum()))
    assert (Unreadable() + parts).jump == 3001
    assert Unreadable().after(np.ones(500, bool)).jump is None  # from the beginning: no jump, but it is counted


def test_a_watch_counts_them_and_keeps_the_count(tmp_path: Path) -> None:
    begin = Watch.begin(alpha=0.05, n_calibration=99)
    watch = begin.after([0.5, None, 0.9, float("nan")])
    assert (watch.seen, watch.unreadable.count) == (2, 2)
    assert "2 of 4 images could not be read" in str(watch)
    assert "WARNING" not in str(watch)
    assert "could not be read" not in str(begin.after([0.5]))
    watch.save(tmp_path / "state.safetensors")
    assert Watch.load(tmp_path / "state.safetensors").unreadable.count == 2
    assert (watch + watch).unreadable.count == 4


def test_the_command_warns(tmp_path: Path) -> None:
    rows = [f"{i}.png,0.9,\n" for i in range(400)] + [f"{i}.png,,broken\n" for i in range(100)]
    (tmp_path / "scores.csv").write_text("path,p_value,error\n" + "".join(rows))
    words = ["watch", str(tmp_path / "scores.csv"), "--alpha", "0.05", "--n-calibration", "99"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    assert "100 of 500 images could not be read" in done.output
    assert "WARNING: from image 401 on" in done.output
