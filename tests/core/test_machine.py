"""Locks that the system frees, and the folder for caches."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from oodshape.core.machine import cores, default_cache, lock_file

HOLD = """
import sys, time
from oodshape.core.machine import lock_file
file = open(sys.argv[1], "ab")
lock_file(file.fileno(), lambda: None)
print("held", flush=True)
time.sleep(60)
"""


def refuse() -> None:
    raise BlockingIOError("held")


def test_a_lock_ends_with_its_process_and_leaves_the_file(tmp_path: Path) -> None:
    path = tmp_path / "data"
    path.write_bytes(b"kept")
    with subprocess.Popen([sys.executable, "-c", HOLD, path], stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with path.open("ab") as file:
            with pytest.raises(BlockingIOError):
                lock_file(file.fileno(), refuse)
            holder.kill()
            holder.wait()
            lock_file(file.fileno(), refuse)
            with path.open("ab") as other, pytest.raises(BlockingIOError):
                lock_file(other.fileno(), refuse)
        with path.open("ab") as file:  # closing it freed the lock
            lock_file(file.fileno(), refuse)
    assert path.read_bytes() == b"kept"


def test_who_waits_is_told_and_gets_the_lock(tmp_path: Path) -> None:
    first, second = (tmp_path / "lock").open("ab"), (tmp_path / "lock").open("ab")
    with second:
        lock_file(first.fileno(), refuse)
        lock_file(second.fileno(), first.close)  # the wait begins, and the first lets go


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/there")
    monkeypatch.setenv("OODSHAPE_CACHE", "")
    assert default_cache() == Path("/there/oodshape")
    monkeypatch.setenv("OODSHAPE_CACHE", "/here")
    assert default_cache() == Path("/here")


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system does not bind processes to cores")
def test_only_cores_that_may_be_used_count() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert cores() == len(allowed)
