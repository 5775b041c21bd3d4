"""The commands that are killed: how each is called, what it must leave, and how two runs of it are compared."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from pkgutil import walk_packages

import numpy as np
import PIL.Image

import oodshape
import oodshape.cli.all_commands

MODEL = ("--model", "zoo:digits-convnet")
GUARD = ("--guard", "../inputs/guard.safetensors", *MODEL)
GONE = 5.0  # seconds within which every process of a killed run has ended


@dataclass(frozen=True)
class Task:
    """A command line, run in a folder of its own next to `inputs`."""

    name: str
    words: tuple[str, ...]
    share: int  # of 100 kills


TASKS = (
    Task(
        "fit",
        tuple(
            f"fit {' '.join(MODEL)} --images ../inputs/train --calibrate ../inputs/val --method optfs-e "
            "--out guard.safetensors --cache cache --quiet".split()
        ),
        30,
    ),
    Task(
        "score",
        ("score", *GUARD, "--images", "../inputs/test", "--out", "scores.csv", "--batch-size", "8", "--quiet"),
        30,
    ),
    Task(
        "watch",
        ("watch", "../inputs/scores.csv", "--state", "state.safetensors", "--alpha", "0.05", "--n-calibration", "99"),
        20,
    ),
    Task(
        "bench",
        (
            "bench",
            "digits",
            "--models",
            "digits-convnet",
            "--methods",
            "msp,optfs-e",
            "--limit",
            "60",
            "--out",
            "out",
            "--cache",
            "cache",
            "--quiet",
        ),
        10,
    ),
    Task("export", ("export", *GUARD, "--out", "guarded.onnx", "--images", "../inputs/test", "--quiet"), 10),
)


def write_inputs(home: Path) -> None:
    """Digit images in folders, and a table of p-values."""
    from oodshape.images.datasets.digits import load_digits_sets

    sets = load_digits_sets()
    parts = {
        "train": sets["train"].images[:600],
        "val": sets["test"].images[:200],
        "test": sets["test"].images[200:520],
    }
    for name, images in parts.items():
        (home / name).mkdir(parents=True, exist_ok=True)
        for number, image in enumerate(images):
            PIL.Image.fromarray(image).save(home / name / f"{number:04}.png")
    p = np.random.default_rng(0).integers(1, 101, size=20_000) / 100
    (home / "scores.csv").write_text("p_value\n" + "".join(f"{value}\n" for value in p))


def preload(home: Path) -> None:
    """Import everything and compile the loops here, so that a fork is at work at once."""
    for module in walk_packages(oodshape.__path__, "oodshape."):
        if module.name != "oodshape.__main__":  # it runs the command line
            import_module(module.name)
    before = os.getcwd()
    for task in TASKS[:2]:
        (home / task.name).mkdir()
        os.chdir(home / task.name)
        sys.argv = ["oodshape", *task.words]
        oodshape.cli.all_commands.app(standalone_mode=False)
        if task.name == "fit":
            shutil.copy("guard.safetensors", home / "inputs")
        os.chdir(before)
        clear(home / task.name)


def started(words: tuple[str, ...], folder: Path, before: Callable[[], None] = lambda: None) -> int:
    """The command line in a process and session of its own, forked from this one: everything is imported already."""
    folder.mkdir(parents=True, exist_ok=True)
    child = os.fork()
    if child:
        return child
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        said = os.open(folder.with_suffix(".log"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.dup2(said, 1)
        os.dup2(said, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        sys.argv = ["oodshape", *words]
        before()
        from oodshape.cli import main

        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        except BaseException:
            import traceback

            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


def ended(child: int) -> int:
    """The exit status of a process, -9 where it was killed."""
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def run(words: tuple[str, ...], folder: Path, before: Callable[[], None] = lambda: None) -> int:
    """A whole run; its exit status."""
    return ended(started(words, folder, before))


def said(folder: Path) -> str:
    """The last line of what a run said."""
    return (folder.with_suffix(".log").read_text(errors="replace").splitlines() or [""])[-1]


def differences(found: dict[str, str], wanted: dict[str, str]) -> list[str]:
    """The files that differ between two runs, that one lacks, or that were left over."""
    names = sorted(name for name in found.keys() | wanted.keys() if found.get(name) != wanted.get(name))
    return [f"{name} {'was left' if name not in wanted else 'differs' if name in found else 'lacks'}" for name in names]


def killed(task: Task, folder: Path, after: float) -> tuple[bool, list[int]]:
    """Start a run and kill it after some time; whether it was still at work, and which of its processes stay."""
    child = started(task.words, folder)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    return ended(child) == -signal.SIGKILL, orphans(child)


def orphans(session: int) -> list[int]:
    """The processes of a session that are still there after the time that they have to end."""
    until = time.monotonic() + GONE
    while found := list(_of_session(session)):
        if time.monotonic() > until:
            return found
        time.sleep(0.05)
    return []


def _of_session(session: int) -> Iterator[int]:
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                yield int(entry.name)


def left(folder: Path) -> dict[str, str]:
    """Every file that a run left, with a digest of what must not differ between two runs."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file()]
    # a benchmark's key holds the folder that it ran in
    return {re.sub(r"runs/\w{16}/", "runs/KEY/", str(path.relative_to(folder))): _digest(path) for path in files}


def _digest(path: Path) -> str:
    """Of the bytes; times of the day and durations are left out, and so are pages that show them."""
    if path.name == "report.html":
        return "has a time in it"
    if path.name == "results.json":
        rows = json.loads(path.read_text())["rows"]
        return _hash(json.dumps([{name: cell for name, cell in row.items() if name != "seconds"} for row in rows]))
    if path.name == "results.csv":
        with path.open(newline="") as file:
            return _hash(repr([{k: v for k, v in row.items() if k != "seconds"} for row in csv.DictReader(file)]))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def clear(folder: Path) -> None:
    """Remove a run's folder and what it said."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.with_suffix(".log").unlink(missing_ok=True)
