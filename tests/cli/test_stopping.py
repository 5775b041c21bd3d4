"""A run that is stopped or killed: one word, no process left, and work that goes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from commands import GUARD, MODEL, call
from folders_of_digits import write_digits

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="processes are found in /proc")

# The images after the first 20 wait for a file: the run can be stopped before its end, however slow the test is.
GO = "go"
SLOW = f"""
import itertools, os, signal, time
from oodshape.images.sources import image_files
from oodshape.images.sources import open_images
from oodshape.cli import main
read = image_files.open_image
assert open_images.open_image is read
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background task ignores it
places = itertools.count()
def slowly(path, **more):
    late = next(places) >= 20
    while late and not os.path.exists({GO!r}):
        time.sleep(0.02)
    return read(path, **more)
image_files.open_image = open_images.open_image = slowly
main()
"""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = write_digits(tmp_path_factory.mktemp("stopping"), train=200, val=60, test=60)
    words = ("--images", "train", "--calibrate", "val", "--method", "energy", "--out", "guard.safetensors")
    assert call("fit", *MODEL, *words, "--cache", "none", cwd=home).returncode == 0
    return home


def of_session(session: int) -> list[int]:
    """The processes of a session that have not ended."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if int(fields[3]) == session and fields[0] != "Z":
                found.append(int(entry.name))
    return found


def begun(home: Path, sign: Path, *words: str) -> subprocess.Popen[str]:
    """A run that has begun its work and waits in it: the sign is a lock, or has content."""
    (home / GO).unlink(missing_ok=True)
    run = subprocess.Popen(
        [sys.executable, "-c", SLOW, *words],
        cwd=home,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    until = time.monotonic() + 300
    while not any(path.name == "lock" or path.stat().st_size > 200 for path in home.glob(str(sign))):
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < until
        time.sleep(0.02)
    return run


@pytest.mark.other_process
def test_a_stopped_run_says_so_and_goes_on(home: Path) -> None:
    words = ("score", *GUARD, "--images", "test", "--batch-size", "4", "--quiet", "--out")
    assert call(*words, "whole.csv", cwd=home).returncode == 0
    run = begun(home, Path("scores.csv.part"), *words, "scores.csv")
    os.kill(run.pid, signal.SIGINT)
    (home / GO).touch()
    _, said = run.communicate(timeout=500)
    assert (run.returncode, said) == (130, "stopped\n")
    assert of_session(run.pid) == []
    assert not (home / "scores.csv").exists()
    assert (
        "of them by an earlier run"
        in call(*(word for word in words if word != "--quiet"), "scores.csv", cwd=home).stdout
    )
    assert (home / "scores.csv").read_bytes() == (home / "whole.csv").read_bytes()


@pytest.mark.parametrize("end", [signal.SIGKILL, signal.SIGTERM])
def test_no_process_outlives_a_killed_fit(end: signal.Signals, home: Path) -> None:
    cache = f"cache-{end.name}"
    words = ("--images", "train", "--calibrate", "val", "--method", "energy", "--out", "again.safetensors")
    run = begun(home, Path(cache) / "*" / "lock", "fit", *MODEL, *words, "--cache", cache)
    os.kill(run.pid, end)
    assert run.wait(timeout=500) == -end
    time.sleep(0.5)  # an orphan has 5 s to go; threads need none
    assert of_session(run.pid) == []
    run.communicate()
