"""Code that a file holds or names runs only with --trust-code, and no name controls a terminal."""

from __future__ import annotations

import csv
import io
import json
import os
import re
import shutil
import warnings
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
import torch
import typer
from safetensors.numpy import load, save

from commands import GUARD, MODEL, call
from folders_of_digits import write_digits
from oodshape import Guard, InputError
from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.run import run_benchmark
from oodshape.benchmark.spec import Benchmark
from oodshape.cli.all_commands import app
from oodshape.core import files
from oodshape.core.files import any_names
from oodshape.guard.scoring.score_formats import parse_scores, read_scores
from oodshape.networks.loading import open_model
from oodshape.networks.zoo import build

COMMANDS = typer.main.get_command(app).commands
CODE = """from pathlib import Path
Path("CODE_RAN").touch()
from oodshape.networks.zoo import build, model_entry
def make():
    return build("digits-convnet"), model_entry("digits-convnet").native
"""
FEW = ("--limit", "20", "--device", "cpu")


class Touch:
    """A pickled object that makes a file when it is loaded."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return (os.mkdir, (str(self.path),))


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """An archive whose weights are a pickled object, hidden behind a second entry whose name is cut at a NUL."""
    path = tmp_path / "hostile.pt2"
    program = torch.export.export(
        build("digits-convnet"), (torch.zeros(2, 1, 16, 16),), dynamic_shapes=({0: torch.export.Dim("batch")},)
    )
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No complete tensor found")
        torch.export.save(program, path)
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    config = next(name for name in entries if name.endswith("weights_config.json"))
    plain = entries.pop(config)
    changed = json.loads(plain)
    next(iter(changed["config"].values())).update(use_pickle=True, path_name="hostile")
    pickled = io.BytesIO()
    torch.save({"a": Touch(tmp_path / "CODE_RAN")}, pickled)
    entries[f"{config.rpartition('/')[0]}/hostile"] = pickled.getvalue()
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in [*entries.items(), (config, json.dumps(changed).encode()), (f"{config}X", plain)]:
            archive.writestr(zipfile.ZipInfo(name), data)
    path.write_bytes(path.read_bytes().replace(f"{config}X".encode(), f"{config}\0".encode()))
    return path


def test_a_hostile_archive_runs_nothing(hostile: Path, tmp_path: Path) -> None:
    marker = tmp_path / "CODE_RAN"
    guard = Guard.fit("zoo:digits-convnet", images=write_digits(tmp_path / "digits") / "train", method="msp", limit=200)
    guard.save(tmp_path / "guard.safetensors")
    images = str(tmp_path / "digits" / "test")
    opened = ("--model", hostile.name)
    saved = ("--guard", "guard.safetensors", *opened)
    for words in (
        ("fit", *opened, "--images", images, "--out", "x.safetensors"),
        ("collect", *opened, "--images", images, "--out", "x.safetensors"),
        ("calibrate", "guard.safetensors", *opened, "--images", images),
        ("score", *saved, "--images", images),
        ("check", *saved, "--id", images, "--ood", images),
        ("export", *saved, "--out", "x.onnx"),
    ):
        done = call(*words, cwd=tmp_path)
        assert done.returncode == 2, words
        assert done.stderr.startswith("error: hostile.pt2 is a torch.export archive, which can run any code"), words
        assert "--trust-code" in done.stderr
        assert done.stderr.count("\n") == 1
    for verb in (
        lambda: open_model(hostile),
        lambda: Guard.fit(hostile, images=images),
        lambda: guard.calibrate(images, hostile),
        lambda: list(guard.score(images, hostile)),
        lambda: guard.explain(images, hostile),
        lambda: guard.attach(hostile),
        lambda: guard.check(images, images, hostile),
        lambda: guard.export(tmp_path / "x.onnx", hostile),
    ):
        with pytest.raises(InputError, match="trust_code=True"):
            verb()
    assert not marker.exists()
    assert not list(tmp_path.glob("x.*"))
    with pytest.raises(InputError, match="cannot be loaded by torch"):
        open_model(hostile, trust_code=True)
    assert marker.exists()  # it was a file that runs code


def test_code_that_a_benchmark_names_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "code_in_toml.py").write_text(CODE)
    (tmp_path / "own.toml").write_text(
        'name = "own"\n[id]\ntrain = "digits:train"\ntest = "digits:test"\n'
        '[[ood]]\nname = "letters"\ngroup = "near"\nimages = "digits:letters"\n'
        '[[models]]\nname = "code_in_toml:make"\n'
    )
    marker = tmp_path / "CODE_RAN"
    bench = ("bench", "own.toml", "--methods", "msp", "--quiet", "--cache", "none", *FEW)
    for words in (bench, ("study", "shaping", "--benchmark", "own.toml", "--cache", "none", *FEW)):
        done = call(*words, cwd=tmp_path)
        assert done.returncode == 2
        assert done.stderr.startswith("error: the benchmark 'own' names code to run: 'code_in_toml:make'; if you trust")
        assert done.stderr.count("\n") == 1
    with pytest.raises(InputError, match="trust_code=True"):
        run_benchmark(Benchmark.load(tmp_path / "own.toml"), BenchOptions(limit=20, progress=False))
    assert not marker.exists()
    assert call(*bench, "--out", "out", "--trust-code", cwd=tmp_path).returncode == 0
    assert marker.exists()


def test_code_that_results_name_needs_trust(tmp_path: Path) -> None:
    (tmp_path / "code_in_results.py").write_text(CODE)
    marker = tmp_path / "CODE_RAN"
    few = ("--models", "ConvNet", "--methods", "msp", "--quiet", "--cache", "none", *FEW)
    assert call("bench", "digits", "--out", "out", *few, cwd=tmp_path).returncode == 0
    file = tmp_path / "out" / "results.json"
    results = json.loads(file.read_text())
    made = results["provenance"]["run"]
    made["text"] = made["text"].replace('name = "digits-convnet"', 'name = "code_in_results:make"')
    results["checksum"] = files.checksum(results)
    file.write_text(json.dumps(results))
    done = call("repeat", "out", cwd=tmp_path)
    assert done.returncode == 2
    assert "names code to run: 'code_in_results:make'" in done.stderr
    assert not marker.exists()
    done = call("repeat", "out", "--trust-code", cwd=tmp_path)
    assert marker.exists()
    assert "the figures agree" in done.stdout, done.stderr


def test_a_class_that_a_guard_names_needs_trust(tmp_path: Path) -> None:
    (tmp_path / "own_class.py").write_text(
        "from dataclasses import dataclass\nfrom pathlib import Path\nfrom oodshape import METHODS\n"
        'Path("CODE_RAN").touch()\n'
        '@dataclass(frozen=True, eq=False, repr=False)\nclass Own(type(METHODS["energy"].score)):\n    pass\n'
    )
    Guard.fit(
        "zoo:digits-convnet", images=write_digits(tmp_path / "digits") / "train", method="energy", limit=200
    ).save(tmp_path / "guard.safetensors")
    data = (tmp_path / "guard.safetensors").read_bytes()
    header = json.loads(json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]["oodshape"])
    value = json.loads(header["value"])
    value["method"]["score"]["type"] = value["scorer"]["type"] = "own_class:Own"
    said = header | {"value": json.dumps(value)}
    said["checksum"] = files.checksum(said, load(data))
    (tmp_path / "guard.safetensors").write_bytes(save(load(data), {"oodshape": json.dumps(said)}))
    score = ("score", "--guard", "guard.safetensors", "--model", "zoo:digits-convnet", "--images", "digits/test")
    done = call(*score, cwd=tmp_path)
    assert done.returncode == 2
    assert "names code, the type 'own_class:Own'" in done.stderr
    assert done.stderr.count("\n") == 1
    assert "guarantee" in call("inspect", "guard.safetensors", cwd=tmp_path).stdout  # which needs no code
    assert not (tmp_path / "CODE_RAN").exists()
    assert call(*score, "--trust-code", cwd=tmp_path).returncode == 0
    assert (tmp_path / "CODE_RAN").exists()


EVIL = "\x1b[2J\x1b]0;title\x07\x9b31m\r\u202egnp\nforged: line"
NAMES = (
    *(f"{EVIL}.png", "a\rb.png", "a\nb.png", "=cmd|'C calc'!A0.png", "@SUM(1+1).png", "+1.png", "-1.png", " a.png"),
    *('a,b".png', "\x85nel.png", "bad\udcff\udcfe.png", "caf\u0065\u0301.png", "caf\u00e9.png", "\ttab.png"),
)
CONTROL = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e]")


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
    shutil.copytree(root / "letters", root / EVIL)
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
    "review": ("scores.csv", "--to", "label-studio", "--root", "odd/none", "--out", "tasks.json"),
    "inspect": ("guard.safetensors",),
    "check": (*GUARD, "--id", "test", "--ood", EVIL, "--limit", "40"),
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


def test_no_name_forges_a_line_of_a_table(place: Path) -> None:
    for command in ("check", "report"):
        done = call(command, *WORDS[command], cwd=place)
        assert done.returncode == 0, done.stderr
        texts = [done.stdout.replace("\t", ""), *(each.read_text() for each in (place / "out").glob("table.*"))]
        for text in texts:
            assert not CONTROL.search(text), text
            assert "\nforged" not in text, text


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
