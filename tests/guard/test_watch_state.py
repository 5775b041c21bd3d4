"""A watch with a state counts every row of every file once, whatever ends its runs."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from commands import call
from oodshape.cli import watch as command
from oodshape.cli.app import app
from oodshape.core.errors import InputError
from oodshape.guard.watch.watch import ReadPosition, Watch, locked_state, read_blocks

START = ("--alpha", "0.05", "--n-calibration", "99")


def run(table: Path, state: Path, *more: str) -> Watch:
    found = CliRunner().invoke(app, ["watch", str(table), "--state", str(state), *START, *more], catch_exceptions=False)
    assert found.exit_code in (0, 3), found.output
    return Watch.load(state)


def rows(count: int, seed: int = 0) -> str:
    p = np.random.default_rng(seed).integers(1, 101, size=count) / 100
    return "".join(f"{number}.png,{value}\n" for number, value in enumerate(p))


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "scores.csv"
    path.write_text("path,p_value\n" + rows(30))
    return path


def test_a_file_given_twice_counts_once(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state = tmp_path / "state.safetensors"
    first = run(table, state)
    assert first.seen == 30
    assert run(table, state) == first
    monkeypatch.chdir(tmp_path)
    (tmp_path / "link.csv").symlink_to(table)
    assert run(Path("link.csv"), state) == first  # the same file by another name
    other = tmp_path / "other.csv"
    shutil.copy(table, other)
    assert run(other, state).seen == 60  # another file, though with equal rows


def test_a_file_that_grew_goes_on_at_its_end(table: Path, tmp_path: Path) -> None:
    state, whole = tmp_path / "state.safetensors", tmp_path / "whole.safetensors"
    run(table, state)
    with table.open("a") as file:
        file.write(rows(12, seed=1) + "half.png,0.2")  # its last line is still being written
    assert run(table, state).seen == 42
    with table.open("a") as file:
        file.write("5\n")
    last = run(table, state)
    assert last.seen == 43
    assert last == run(table, whole)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_other_formats_have_places_too(ending: str, tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"path": ["a", "b", "c", "d"], "p_value": [0.5, None, 0.12, 1.0]})
    table, state = tmp_path / f"scores.{ending}", tmp_path / "state.safetensors"

    def write(count: int) -> None:
        part = frame[:count]
        part.to_parquet(table) if ending == "parquet" else part.to_json(table, orient="records", lines=True)

    write(3)
    assert [run(table, state).seen for _ in range(2)] == [2, 2]
    write(4)
    last = run(table, state)
    assert (last.seen, last.unreadable) == (3, 1)


def test_scores_of_another_guard_are_refused(tmp_path: Path) -> None:
    table, state = tmp_path / "scores.csv", tmp_path / "state.safetensors"
    table.write_text("path,p_value\na.png,0.5\nb.png,0.490066\n")  # 74 of 151
    with pytest.raises(InputError, match=r"not of a guard with 99 calibration images: 0.490066 is no multiple"):
        run(table, state)
    assert not state.exists()


def test_a_file_changed_before_the_place_is_refused(table: Path, tmp_path: Path) -> None:
    state = tmp_path / "state.safetensors"
    first, text = run(table, state), table.read_text()
    changed = text.replace("3.png", "4.png", 1)
    for wrong in (changed, text[: len(text) // 2], text[:-1] + "1\n", "path,p_value\n" + rows(300, seed=5), ""):
        table.write_text(wrong)
        with pytest.raises(InputError, match=r"scores\.csv was changed in the \d+ rows that were counted"):
            run(table, state)
        assert Watch.load(state) == first
    with pytest.raises(InputError, match="was changed"):
        next(read_blocks(str(table), first.read[0], size=1, follow=True))  # it does not wait for ever
    table.write_text(text)
    assert run(table, state) == first


class Killed(BaseException):
    """Ends a run as a signal would: nothing after it is done."""


def test_a_kill_neither_loses_nor_repeats_a_row(table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    state, whole = tmp_path / "state.safetensors", tmp_path / "whole.safetensors"
    monkeypatch.setattr(command, "BLOCK", 3)
    wanted = run(table, whole)
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
            run(table, state)
            break
        except Killed:
            kills += 1
    assert kills > 5
    assert Watch.load(state) == wanted


def test_a_position_that_no_file_has_is_refused() -> None:
    with pytest.raises(InputError, match="rows"):
        ReadPosition("a.csv", -1)


def test_standard_input_has_no_place_and_says_so(tmp_path: Path) -> None:
    for number in (1, 2):
        words = ["watch", "-", "--state", str(tmp_path / "state"), *START]
        found = CliRunner().invoke(app, words, input="p_value\n0.5\n0.25\n", catch_exceptions=False)
        assert found.exit_code == 0
        assert "standard input has no position to continue from: every row of it counts as new" in found.output
        assert f"{2 * number} images" in found.output  # both runs count
    assert Watch.load(tmp_path / "state").read == ()


def test_one_process_at_a_time_uses_a_state(tmp_path: Path) -> None:
    """A service that watches holds the same lock."""
    (tmp_path / "s.csv").write_text("p_value\n0.5\n")
    words = ("watch", "s.csv", "--state", "state.safetensors", "--alpha", "0.05", "--n-calibration", "99")
    with locked_state(str(tmp_path / "state.safetensors")):
        done = call(*words, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: another process uses state.safetensors")
    assert not (tmp_path / "state.safetensors").exists()
    assert call(*words, cwd=tmp_path).returncode == 0
