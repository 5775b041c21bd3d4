"""A watch over time: its history, resets, verdicts, and the page."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import call
from oodshape import InputError, Verdict, Watch
from oodshape.guard.verdict import Scored
from oodshape.guard.watch import history as history_room

PROMISE = {"alpha": 0.05, "n_calibration": 999}


def calm(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 1001, count) / 1000


def shifted(count: int, seed: int = 1) -> np.ndarray:
    return np.maximum(np.rint(1000 * calm(count, seed) ** 3), 1) / 1000


def test_the_history_counts_by_thousand() -> None:
    p = [*calm(2500), None, *calm(700, 3)]
    watch = Watch.begin(**PROMISE).after(p)
    history = watch.history
    assert history.sizes.tolist() == [1000, 1000, 1000, 200]
    assert history.unreadable.tolist() == [0, 0, 1, 0]
    assert history.rejected.sum() == watch.rejection.hits
    parts = np.split(np.array([x for x in p if x is not None]), [1000, 2000, 3000])
    for block, part in zip(history.p_values, parts, strict=True):
        # (0, 0.05], (0.05, 0.1] ...
        wanted = [((part > i / 20 + 1e-9) & (part <= (i + 1) / 20 + 1e-9)).sum() for i in range(20)]
        assert block.tolist() == wanted
    assert history.evidence[-1].tolist() == [watch.rejection.highest, watch.middle.highest]


def test_no_split_of_the_stream_changes_anything(tmp_path: Path) -> None:
    p = np.concatenate([calm(1800), shifted(600)])
    labels = [f"class {i % 3}" for i in range(len(p))]
    whole = Watch.begin(**PROMISE).after(p, labels=labels)
    parts = Watch.begin(**PROMISE)
    for piece in np.split(np.arange(len(p)), [1, 999, 1000, 1001, 1801, 2300]):
        parts = parts.after(p[piece], labels=[labels[i] for i in piece])
        parts.save(tmp_path / "state.safetensors")
        assert Watch.load(tmp_path / "state.safetensors") == parts
        parts = Watch.load(tmp_path / "state.safetensors")
    for name in ("sizes", "rejected", "classes"):
        np.testing.assert_array_equal(getattr(whole.history, name), getattr(parts.history, name))
    assert whole.history.names == parts.history.names == ("class 0", "class 1", "class 2")
    assert (whole.seen, whole.rejection, whole.middle) == (parts.seen, parts.rejection, parts.middle)
    assert len(whole.history.events) == len(parts.history.events) == 1


def test_the_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_room, "MOST", 4)
    watch = Watch.begin(**PROMISE).after(calm(9500))
    assert watch.history.block == 4000
    assert watch.history.sizes.tolist() == [4000, 4000, 1500]
    assert watch.history.rejected.sum() == watch.rejection.hits
    monkeypatch.setattr(history_room, "CLASSES", 2)
    watch = Watch.begin(**PROMISE).after([0.5] * 6, labels=["a", "b", "c", "d", "a", ""])
    assert dict(zip(watch.history.names, watch.history.classes.tolist(), strict=True)) == {
        "a": [2, 0],
        "b": [1, 0],
        history_room.OTHERS: [2, 0],
    }


def test_a_reset_begins_anew_and_keeps_the_history(tmp_path: Path) -> None:
    watch = Watch.begin(**PROMISE).after(calm(3000)).after(shifted(200))
    (alarm,) = watch.history.events
    assert 3000 < alarm.image < 3150
    assert abs(alarm.began - 3000) < 60
    again = watch.reset(n_calibration=499).after(calm(1500, 5))
    assert not again.alarm
    assert again.seen == 1500
    assert again.n_calibration == 499
    assert again.history.seen == 4700
    assert [event.kind for event in again.history.events] == ["alarm", "reset"]
    later = again.after(shifted(300, 7))
    last = later.history.events[-1]
    assert 4700 < last.image < 4900  # counted from the beginning of the stream, not of the test
    later.save(tmp_path / "watch.safetensors")
    assert Watch.load(tmp_path / "watch.safetensors") == later


def test_verdicts_and_rows_are_added() -> None:
    verdict = Verdict("cat", 3, 9.0, 0.03, False, 9.5)
    rows = [Scored("a.png", "dog", 9.9, 0.7, True), Scored("b.png", error="broken"), Scored("c.png", 7, 9.9, 0.9, True)]
    watch = Watch.begin(**PROMISE).add(verdict).add([verdict, verdict]).add(rows)
    assert (watch.seen, watch.rejection.hits, watch.unreadable) == (5, 3, 1)
    assert dict(zip(watch.history.names, watch.history.classes.tolist(), strict=True)) == {
        "cat": [0, 3],
        "dog": [1, 0],
        "7": [1, 0],
    }


def write(path: Path, p_values: np.ndarray, label: str = "cat") -> Path:
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["path", "class", "p_value"])
        table.writerows([f"{i}.png", label if i % 4 else "<b>", f"{p:.6g}"] for i, p in enumerate(p_values))
    return path


def test_the_command_over_time(tmp_path: Path) -> None:
    """A shift, a page, a look without new rows, and a reset with new ones."""
    write(tmp_path / "a.csv", np.concatenate([calm(1500, 2), shifted(300)]), "dog")
    told = ("--alpha", "0.05", "--n-calibration", "999", "--state", "w.safetensors")
    done = call("watch", "a.csv", *told, "--page", "w.html", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "ALARM at image 15" in done.stdout
    page = (tmp_path / "w.html").read_text()
    for said in ("the change began near image 1,", "By class", "evidence over time", "&lt;b&gt;"):
        assert said in page, said
    assert '<td class="words"><b>' not in page
    seen = call("watch", "--state", "w.safetensors", "--page", "w2.html", cwd=tmp_path)
    assert seen.returncode == 3
    assert (tmp_path / "w2.html").read_text() == page
    write(tmp_path / "c.csv", calm(900, 9), "dog")
    done = call("watch", "c.csv", "--state", "w.safetensors", "--reset", cwd=tmp_path)
    assert done.returncode == 0, done.stdout
    state = Watch.load(tmp_path / "w.safetensors")
    assert state.seen == 900
    assert state.history.seen == 2700
    assert [event.kind for event in state.history.events] == ["alarm", "reset"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"block": 2}, "a history has 3 images in a block of 2"),
        ({"rejected": np.array([4])}, "a history rejects more images than it has"),
        ({"rejected": np.array([0, 0])}, "T"),
        ({"evidence": np.zeros((1, 3))}, "a history has other columns"),
        ({"classes": np.ones((2, 3), np.int64)}, "other counts than two for each of 2 classes"),
        ({"names": ("cat",)}, "other counts than two for each of 1 classes"),
    ],
)
def test_a_history_that_no_stream_leads_to_is_refused(changes: dict[str, Any], said: str) -> None:
    """A damaged state with the right checksum ended in an IndexError at its next image."""
    whole = history_room.History().after(
        np.array([0.1, 0.5, 0.9]), np.zeros(3, bool), 0, ("cat", "dog", "cat"), (0.5, 0.0)
    )
    with pytest.raises(InputError, match=said):
        replace(whole, **changes)
