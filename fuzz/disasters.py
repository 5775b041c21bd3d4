"""What befalls a run besides a kill; each gives back what was not as it must be."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from kill_tasks import TASKS, clear, differences, ended, left, run, said, started

NOBODY = 65534
NAMED = {task.name: task for task in TASKS}


def _wanted(home: Path, name: str) -> dict[str, str]:
    """What a run leaves that nothing befalls."""
    folder = home / f"{name}-whole"
    if not folder.exists():
        run(NAMED[name].words, folder)
    return left(folder)


def _line(folder: Path, code: int, what: str) -> list[str]:
    """What is wrong with the end of a run that cannot succeed: it must be an error of one line."""
    lines = folder.with_suffix(".log").read_text(errors="replace").splitlines()
    good = code in (1, 2) and [line.startswith("error: ") for line in lines] == [True]
    return [] if good else [f"{what}: ended with {code} and {len(lines)} lines: {said(folder)}"]


def _then_whole(home: Path, name: str, folder: Path, what: str) -> list[str]:
    """Run it again without the disaster; what differs."""
    code = run(NAMED[name].words, folder)
    if code not in (0, 3):
        return [f"{what}: the next run ended with {code}: {said(folder)}"]
    return [f"{what}: {each}" for each in differences(left(folder), _wanted(home, name))]


def full_disk(home: Path) -> list[str]:
    """A disk that is full: a small tmpfs, or where none may be mounted a limit on the size of files:"""
    wrong = []
    for name, room in (("fit", 24), ("fit", 60), ("score", 4), ("score", 12), ("export", 8)):  # KiB
        folder, what = home / f"full-{name}", f"{name} with {room} KiB"
        clear(folder)
        folder.mkdir()
        tmpfs = ["mount", "-t", "tmpfs", "-o", f"size={room}k", "tmpfs", str(folder)]
        mounted = subprocess.run(tmpfs, capture_output=True, check=False).returncode == 0
        code = run(NAMED[name].words, folder, (lambda: None) if mounted else _small_files(room))
        wrong += _line(folder, code, what)
        if mounted:
            subprocess.run(["mount", "-o", "remount,size=64m", str(folder)], check=True)
        wrong += _then_whole(home, name, folder, what)
        if mounted:
            subprocess.run(["umount", str(folder)], check=True)
    print(f"  ({'a tmpfs' if mounted else 'no tmpfs may be mounted here: RLIMIT_FSIZE'})")
    return wrong


def _small_files(room: int) -> Callable[[], None]:
    def limit() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1024 * room, 1024 * room))

    return limit


def read_only(home: Path) -> list[str]:
    """A folder that may not be written, by a user who is not root:"""
    wrong = []
    for name in ("fit", "score", "watch", "export", "bench"):
        folder = home / f"closed-{name}"
        folder.mkdir()
        folder.chmod(0o555)
        code = run(NAMED[name].words, folder, _as_nobody)
        wrong += _line(folder, code, f"{name} in a closed folder")
        wrong += [f"{name} in a closed folder: {each} was left" for each in left(folder)]
        folder.chmod(0o755)
        wrong += _then_whole(home, name, folder, f"{name} in a folder that was closed")
    return wrong


def _as_nobody() -> None:
    if os.getuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)


def deleted_cache(home: Path) -> list[str]:
    """A cache that is deleted between two runs, and during one:"""
    folder, wrong = home / "no-cache", []
    for moment in (None, 0.05, 0.2, 0.5):
        clear(folder)
        child = started(NAMED["fit"].words, folder)
        if moment is not None:
            time.sleep(moment)
            shutil.rmtree(folder / "cache", ignore_errors=True)
        code = ended(child)
        if code != 0:
            wrong += _line(folder, code, f"fit without its cache after {moment} s")
        shutil.rmtree(folder / "cache", ignore_errors=True)
        wrong += _then_whole(home, "fit", folder, "fit after its cache was deleted")
    return wrong


def removed_image(home: Path) -> list[str]:
    """Images that are removed while they are scored: their rows alone may differ:"""
    wanted = (home / "score-whole" / "scores.csv") if _wanted(home, "score") else Path()
    images, kept, folder = home / "inputs" / "test", home / "kept", home / "removed"
    gone = [f"{number:04}.png" for number in (40, 90, 127)]
    kept.mkdir()
    child = started(NAMED["score"].words, folder)
    for name in gone:
        time.sleep(0.02)
        (images / name).rename(kept / name)
    code = ended(child)
    for name in gone:
        (kept / name).rename(images / name)
    if code not in (0, 3):
        return [f"score while images go: ended with {code}: {said(folder)}"]
    pairs = zip((folder / "scores.csv").read_text().splitlines(), wanted.read_text().splitlines(), strict=False)
    others = [ours for ours, theirs in pairs if ours != theirs and not any(name in ours for name in gone)]
    # an image that goes before the folder is listed has no row, and those behind it another batch: then no line fits
    rows = len((folder / "scores.csv").read_text().splitlines())
    return [f"score while images go: {others[0]}"] if others and rows == 129 else []


def two_at_once(home: Path) -> list[str]:
    """Two runs on one cache, and two on one output: both whole, or one refused by a line:"""
    wrong = []
    for name in ("fit", "bench", "score", "watch"):
        folder = home / f"two-{name}"
        pair = [started(NAMED[name].words, folder) for _ in range(2)]
        codes = [ended(child) for child in pair]
        if not any(code in (0, 3) for code in codes) or any(code not in (0, 2, 3) for code in codes):
            wrong.append(f"two at once of {name} ended with {codes}: {said(folder)}")
        wrong += [f"two at once of {name}: {each}" for each in differences(left(folder), _wanted(home, name))]
    return wrong


DISASTERS = (full_disk, read_only, deleted_cache, removed_image, two_at_once)
