"""Names of files and texts inside files: no command lets them control a terminal, and tables hold them as they are."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer

from commands import GUARD, MODEL, call
from folders_of_digits import write_digits
from oodshape import Guard
from oodshape.cli.app import app
from oodshape.core import files
from oodshape.core.reading import any_names
from oodshape.guard.scoring.score_table import parse_scores, read_scores

EVIL = "\x1b[2J\x1b]0;title\x07\x9b31m\r\u202egnp\nforged: line"
NAMES = (
    *(f"{EVIL}.png", "a\rb.png", "a\nb.png", "=cmd|'C calc'!A0.png", "@SUM(1+1).png", "+1.png", "-1.png", " a.png"),
    *('a,b".png', "\x85nel.png", "bad\udcff\udcfe.png", "caf\u0065\u0301.png", "caf\u00e9.png", "\ttab.png"),
)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]")
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images of hostile names, and files that say hostile things about themselves."""
    root = write_digits(tmp_path_factory.mktemp("names"), train=60, val=40)
    (root / "odd").mkdir()
    for number, name in enumerate(NAMES):
        shutil.copy(root / "test" / f"{number:04}.png", root / "odd" / name)
    (root / "odd" / f"{EVIL} broken.png").write_bytes(b"no image")
    words = ("--images", "train", "--calibrate", "val", "--method", "energy", "--cache", "cache", "--quiet")
    assert call("fit", *MODEL, *words, "--out", "plain.safetensors", cwd=root).returncode == 0
    guard = Guard.load(root / "plain.safetensors")
    names = tuple(f"{EVIL} {number}" for number in range(8))
    about = replace(guard.about, classes=names, model=EVIL, weights=EVIL, method=EVIL)
    Guard(guard.detector, about).save(root / "guard.safetensors")
    assert call("score", *GUARD, "--images", "odd", "--out", "scores.csv", cwd=root).returncode == 3
    words = ("--models", "digits-convnet", "--methods", "msp,energy", "--limit", "20", "--cache", "cache", "--quiet")
    assert call("bench", "digits", *words, "--out", "out", cwd=root).returncode == 0
    path = root / "out" / "results.json"
    said = json.loads(path.read_text().replace("digits-convnet", json.dumps(EVIL)[1:-1]).replace("letters", "\\u009bl"))
    path.write_text(json.dumps(said | {"checksum": files.checksum(said)}))
    (root / f"{EVIL}.onnx").write_bytes(b"no graph")
    (root / f"{EVIL}.csv").write_text("p_value\nwrong\n")
    return root


WORDS: dict[str, tuple[str, ...]] = {
    "fit": (*MODEL, "--images", "odd", "--method", "energy", "--cache", "none", "--out", "other.safetensors"),
    "collect": (*MODEL, "--images", "odd", "--method", "energy", "--out", "part.safetensors"),
    "calibrate": (*GUARD, "--images", "odd", "--alpha", "0.3", "--out", "other.safetensors"),
    "score": (*GUARD, "--images", "odd"),
    "merge": (f"{EVIL}.csv", "--out", "merged.csv"),
    "decide": ("scores.csv", "--fdr", "0.99"),
    "inspect": ("guard.safetensors",),
    "check": (*GUARD, "--images", "odd"),
    "export": (*GUARD, "--out", f"{EVIL}/guarded.onnx"),
    "serve": (f"{EVIL}.onnx",),
    "watch": (f"{EVIL}.csv", "--alpha", "0.05", "--n-calibration", "99"),
    "bench": ("digits", "--models", EVIL),
    "report": ("out",),
    "compare": ("out", "out"),
    "repeat": ("out",),
    "study": ("validation", "--model", EVIL),
    "methods": (EVIL,),
    "models": (EVIL,),
    "data": ("--data", EVIL),
}


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_no_command_lets_a_name_control_the_terminal(
    command: str, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "dumb")  # no colours of our own
    monkeypatch.setattr("io.StringIO", Terminal)
    for words in (WORDS[command], (EVIL,), (f"--{EVIL}",)):
        done = call(command, *words, cwd=place)
        for text in (done.stdout, done.stderr):
            assert not CONTROL.search(text), (words, text)
            assert "\nforged" not in text, (words, text)
        assert done.stdout + done.stderr


def test_tables_hold_every_name_as_it_is(place: Path) -> None:
    wanted = {*NAMES, f"{EVIL} broken.png"}
    done = call("decide", "scores.csv", "--fdr", "0.99", "--out", "all.csv", cwd=place)
    assert done.returncode == 0, done.stderr
    for table in (place / "scores.csv", place / "all.csv"):
        with table.open(newline="", errors="surrogateescape") as file:
            assert {row["path"].removeprefix("odd/") for row in csv.DictReader(file)} == wanted
        assert {row.cells["path"].removeprefix("odd/") for row in read_scores(str(table))} == wanted
        standard_input = any_names(io.TextIOWrapper(io.BytesIO(table.read_bytes())))
        assert {row.cells["path"].removeprefix("odd/") for row in parse_scores(standard_input)} == wanted


def test_formulas_are_quoted(place: Path) -> None:
    words = ("--guard", "../guard.safetensors", *MODEL, "--images", "-")
    done = call("score", *words, cwd=place / "odd", stdin="=cmd|'C calc'!A0.png\n-1.png\n")
    assert '"=cmd|' in done.stdout, done.stderr
