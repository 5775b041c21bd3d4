"""Watching a stream: few false alarms, shifts found soon, a history, and a state that counts every row once."""

from __future__ import annotations

import csv
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from typer.testing import CliRunner

from commands import call
from data import features
from oodshape import METHODS, InputError, Verdict, Watch
from oodshape.cli import watch as command
from oodshape.cli.all_commands import app
from oodshape.guard.verdict import Scored
from oodshape.guard.watch import history as history_room
from oodshape.guard.watch.watch import read_blocks
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
        below = np.maximum(rng.uniform(0, 1, 400) ** 3, 1e-3)  # 37 % below 0.05
        p = np.concatenate([rng.uniform(1e-3, 1, 3000), below])
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


def test_rejected_is_what_the_detector_rejects() -> None:
    detector = METHODS["energy"].fit(features()).calibrate(features(99, seed=1))
    said = detector.decide(features(400, seed=2))
    rounded = np.round(said.p_values.numpy(), 4)  # as a file may hold them
    watch = Watch.begin(alpha=0.05, n_calibration=99).after(rounded)
    assert watch.rejection.hits == int((~said.accepted).sum())


def test_p_values_that_cannot_be_are_refused() -> None:
    with pytest.raises(InputError, match=r"lie in \(0, 1\], got 1.5 at place 2"):
        Watch.begin(alpha=0.05, n_calibration=99).after([0.5, 1.5])
    with pytest.raises(InputError, match="with 99 calibration images no p-value is below 1 / 100, got 1e-06; give"):
        Watch.begin(alpha=0.05, n_calibration=99).after([1e-6] * 20)
    assert Watch.begin(alpha=0.05, n_calibration=99).after([0.00999999] * 20).alarm  # rounded in a text file


def test_more_rejections_than_guaranteed_are_said_before_an_alarm() -> None:
    """10 % are rejected: more than 5 %, less than a calibration set of 99 images explains."""
    watch = Watch.begin(alpha=0.05, n_calibration=99).after(([0.01] + [0.6] * 9) * 200)
    assert not watch.alarm
    assert watch.rejection.interval()[0] > 0.05
    assert watch.rejection.rate < watch.rejection.allowed
    assert "no alarm yet: more is rejected than guaranteed, but up to 1" in str(watch)


PROMISE = {"alpha": 0.05, "n_calibration": 999}


def calm(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(1, 1001, count) / 1000


def shifted(count: int, seed: int = 1) -> np.ndarray:
    return np.maximum(np.rint(1000 * calm(count, seed) ** 3), 1) / 1000


def test_the_history_has_60_to_120_blocks() -> None:
    p = [*calm(2500), None, *calm(700, 3)]
    watch = Watch.begin(**PROMISE).after(p)
    history = watch.history
    assert history.sizes.tolist() == [32] * 100
    assert np.flatnonzero(history.unreadable).tolist() == [2500 // 32]
    assert history.rejected.sum() == watch.rejection.hits
    parts = np.split(np.array([x for x in p if x is not None]), 100)
    for block, part in zip(history.p_values, parts, strict=True):
        # (0, 0.05], (0.05, 0.1] ...
        wanted = [((part > i / 20 + 1e-9) & (part <= (i + 1) / 20 + 1e-9)).sum() for i in range(20)]
        assert block.tolist() == wanted


def test_no_split_of_the_stream_changes_anything(tmp_path: Path) -> None:
    p = np.concatenate([calm(1800), shifted(600)])
    whole = Watch.begin(**PROMISE).after(p)
    parts = Watch.begin(**PROMISE)
    for piece in np.split(p, [1, 999, 1000, 1001, 1801, 2300]):
        parts = parts.after(piece)
        parts.save(tmp_path / "state.safetensors")
        assert Watch.load(tmp_path / "state.safetensors") == parts
        parts = Watch.load(tmp_path / "state.safetensors")
    for name in ("sizes", "rejected"):
        np.testing.assert_array_equal(getattr(whole.history, name), getattr(parts.history, name))
    assert (whole.seen, whole.rejection, whole.middle) == (parts.seen, parts.rejection, parts.middle)
    assert len(whole.history.events) == len(parts.history.events) == 1


def test_a_reset_begins_anew_and_keeps_the_history(tmp_path: Path) -> None:
    watch = Watch.begin(**PROMISE).after(calm(3000)).after(shifted(200))
    (alarm,) = watch.history.events
    assert 3000 < alarm.image < 3150
    assert abs(alarm.began - 3000) < 60
    again = watch.reset(n_calibration=1499).after(calm(1500, 5))
    assert not again.alarm
    assert again.seen == 1500
    assert again.n_calibration == 1499
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
    with pytest.raises(InputError, match=r"decided at another alpha than 0\.01: .* p-value 0\.03 was rejected"):
        Watch.begin(alpha=0.01, n_calibration=999).add(verdict)


def test_the_command(tmp_path: Path) -> None:
    guard, table = tmp_path / "guard.safetensors", tmp_path / "scores.csv"
    METHODS["energy"].fit(features()).calibrate(features(199, seed=1)).save(guard)
    values = conformal(np.random.default_rng(6), 199, 500)
    table.write_text("p_value\n" + "".join(f"{value}\n" for value in values))
    quiet = call("watch", "scores.csv", "--guard", "guard.safetensors", cwd=tmp_path)
    assert quiet.returncode == 0, quiet.stderr
    assert "500 images" in quiet.stdout
    assert "guaranteed 5 %" in quiet.stdout
    begin = ("--alpha", "0.05", "--n-calibration", "99")
    piped = call("watch", "-", *begin, cwd=tmp_path, stdin="p_value\n" + "0.01\n" * 99)
    assert piped.returncode == 3
    assert "99 images" not in piped.stdout  # it stops at the alarm
    METHODS["energy"].fit(features()).save(guard)
    Watch.begin(alpha=0.05, n_calibration=199).save(tmp_path / "begun")
    for words, said in (
        (["--state", "begun", "--alpha", "0.2"], "begun watches with --alpha 0.05, but got 0.2"),
        (["scores.csv"], "--guard FILE, or --alpha and --n-calibration"),
        (["scores.csv", "--guard", "guard.safetensors"], "has no guarantee yet"),
        (["scores.csv", "--reset", *begin], "need --state"),
        (begin, "need --state"),
    ):
        assert said in call("watch", *words, cwd=tmp_path).stderr


def write_scores(path: Path, p_values: np.ndarray, label: str = "cat") -> Path:
    with path.open("w", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["path", "class", "p_value"])
        table.writerows([f"{i}.png", label if i % 4 else "<b>", f"{p:.6g}"] for i, p in enumerate(p_values))
    return path


def test_the_command_over_time(tmp_path: Path) -> None:
    """A shift, a page, a look without new rows, and a reset with new ones."""
    write_scores(tmp_path / "a.csv", np.concatenate([calm(1500, 2), shifted(300)]), "dog")
    told = ("--alpha", "0.05", "--n-calibration", "999", "--state", "w.safetensors")
    for i in range(1600, 1800):
        PIL.Image.new("L", (8, 8)).save(tmp_path / f"{i}.png")
    done = call("watch", "a.csv", *told, "--page", "w.html", cwd=tmp_path)
    assert done.returncode == 3, done.stderr
    assert "rejected since the change: w-rejected.csv" in done.stdout
    state = Watch.load(tmp_path / "w.safetensors")
    began, p_values = state.history.events[0].began, np.concatenate([calm(1500, 2), shifted(300)])
    wanted = [i for i, p in enumerate(p_values) if p <= 0.05 + 1e-9 and i + 1 >= began]
    with open(tmp_path / "w-rejected.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["path"] for row in rows] == [str(tmp_path / f"{i}.png") for i in wanted]
    assert [int(row["image"]) for row in rows] == [i + 1 for i in wanted]
    assert "ALARM at image 15" in done.stdout
    page = (tmp_path / "w.html").read_text()
    assert 24 <= page.count("<li><figure") <= 48
    assert 10 <= page.count("<img") < page.count("<li><figure") == page.count("<img") + page.count("image not found")
    for said in (
        "w-rejected.csv",
        "accepted and rejected alike",
        "the change began near image 1,",
        "allowed: up to 7.1 %",
        "&lt;b&gt;",
    ):
        assert said in page, said
    seen = call("watch", "--state", "w.safetensors", "--page", "w2.html", cwd=tmp_path)
    assert seen.returncode == 3
    assert (tmp_path / "w2.html").read_text() == page.replace("w-rejected", "w2-rejected")
    assert (tmp_path / "w2-rejected.csv").read_bytes() == (tmp_path / "w-rejected.csv").read_bytes()
    write_scores(tmp_path / "c.csv", calm(900, 9), "dog")
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
        ({"p_values": np.array([[1, 1, 1]])}, "a history has other columns"),
    ],
)
def test_a_history_that_no_stream_leads_to_is_refused(changes: dict[str, Any], said: str) -> None:
    """A damaged state with the right checksum ended in an IndexError at its next image."""
    whole = history_room.History().after(np.array([0.1, 0.5, 0.9]), np.zeros(3, bool), 0)
    with pytest.raises(InputError, match=said):
        replace(whole, **changes)


def test_events_are_few_and_of_known_kinds() -> None:
    """A kind is a part of the page."""
    with pytest.raises(InputError, match="kind must be one of alarm, reset"):
        history_room.Event("</svg><h1>", 3)  # type: ignore[arg-type]
    reset = history_room.Event("reset", 3)
    full = replace(history_room.History(), events=(history_room.Event("alarm", 1), *[reset] * 999))
    assert full.with_event(reset).events == (reset,) * 1000
    with pytest.raises(InputError, match="at most 1,000 events, got 1,001"):
        replace(full, events=(*full.events, reset))


START = ("--alpha", "0.05", "--n-calibration", "99")


def watch_file(table: Path, state: Path, *more: str) -> Watch:
    found = CliRunner().invoke(app, ["watch", str(table), "--state", str(state), *START, *more], catch_exceptions=False)
    assert found.exit_code in (0, 3), found.output
    return Watch.load(state)


def lines_of(count: int, seed: int = 0) -> str:
    p = np.random.default_rng(seed).integers(1, 101, size=count) / 100
    return "".join(f"{number}.png,{value}\n" for number, value in enumerate(p))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    path.write_text("path,p_value\n" + lines_of(30))
    return path


def test_a_file_given_twice_counts_once(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state.safetensors"
    first = watch_file(table, state)
    assert first.seen == 30
    assert watch_file(table, state) == first
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.csv").symlink_to(table)
    assert watch_file(Path("link.csv"), state) == first  # the same file by another name
    other = tmp_path / "other.csv"
    shutil.copy(table, other)
    assert watch_file(other, state).seen == 60  # another file, though with equal rows


def test_a_file_that_grew_goes_on_at_its_end(table: Path, tmp_path: Path) -> None:
    state, whole = tmp_path / "state.safetensors", tmp_path / "whole.safetensors"
    watch_file(table, state)
    with table.open("a") as file:
        file.write(lines_of(12, seed=1) + "half.png,0.2")  # its last line is still being written
    assert watch_file(table, state).seen == 42
    with table.open("a") as file:
        file.write("5\n")
    last = watch_file(table, state)
    assert last.seen == 43
    assert last == watch_file(table, whole)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_other_formats_have_places_too(ending: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"class": ["cat", "", "dog", "cat"], "p_value": [0.5, None, 0.01, 1.0]})
    table, state = tmp_path / f"scores.{ending}", tmp_path / "state.safetensors"

    def write(count: int) -> None:
        part = frame[:count]
        part.to_parquet(table) if ending == "parquet" else part.to_json(table, orient="records", lines=True)

    write(3)
    assert [watch_file(table, state).seen for _ in range(2)] == [2, 2]
    write(4)
    last = watch_file(table, state)
    assert (last.seen, last.unreadable) == (3, 1)


def test_scores_of_another_guard_are_refused(tmp_path: Path) -> None:
    table, state = tmp_path / "scores.csv", tmp_path / "state.safetensors"
    table.write_text("path,p_value\na.png,0.5\nb.png,0.490066\n")  # 74 of 151
    with pytest.raises(InputError, match=r"not of a guard with 99 calibration images: 0.490066 is no multiple"):
        watch_file(table, state)
    assert not state.exists()


def test_a_file_changed_before_the_place_is_refused(table: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.safetensors"
    first, text = watch_file(table, state), table.read_text()
    changed = text.replace("3.png", "4.png", 1)
    for wrong in (changed, text[: len(text) // 2], text[:-1] + "1\n", "path,p_value\n" + lines_of(300, seed=5), ""):
        table.write_text(wrong)
        with pytest.raises(InputError, match=r"scores\.csv was changed in the \d+ rows that were counted"):
            watch_file(table, state)
        assert Watch.load(state) == first
    with pytest.raises(InputError, match="was changed"):
        next(read_blocks(str(table), first.read[0], size=1, follow=True))  # it does not wait for ever
    table.write_text(text)
    assert watch_file(table, state) == first


class Killed(BaseException):
    """Ends a watch_file as a signal would: nothing after it is done."""


def test_a_kill_neither_loses_nor_repeats_a_row(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, whole = tmp_path / "state.safetensors", tmp_path / "whole.safetensors"
    monkeypatch.setattr(command, "BLOCK", 3)
    wanted = watch_file(table, whole)
    save, chance = Watch.save, np.random.default_rng(8)

    def dying(self: Watch, path: Path) -> None:
        if chance.random() < 0.3:
            raise Killed  # before the state is written
        save(self, path)
        if chance.random() < 0.3:
            raise Killed  # after it is

    monkeypatch.setattr(Watch, "save", dying)
    kills = 0
    while True:
        try:
            watch_file(table, state)
            break
        except Killed:
            kills += 1
    assert kills > 5
    assert Watch.load(state) == wanted


def test_standard_input_has_no_place_and_says_so(tmp_path: Path) -> None:
    for number in (1, 2):
        words = ["watch", "-", "--state", str(tmp_path / "state"), *START]
        found = CliRunner().invoke(app, words, input="p_value\n0.5\n0.25\n", catch_exceptions=False)
        assert found.exit_code == 0
        assert "standard input has no position to continue from: every row of it counts as new" in found.output
        assert f"{2 * number} images" in found.output  # both runs count
    assert Watch.load(tmp_path / "state").read == ()
