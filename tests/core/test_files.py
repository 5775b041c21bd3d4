"""Files of another kind, files that take their place whole or not at all, and locks that the system frees."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oodshape import InputError, Watch
from oodshape.core import files
from oodshape.core.files import replacing
from oodshape.core.machine import default_cache, lock_file


def test_any_kind_says_the_way_out(tmp_path: Path) -> None:
    state, other = tmp_path / "state.safetensors", tmp_path / "notes.txt"
    Watch.begin(alpha=0.05, n_calibration=99).save(state)
    other.write_text("no tensors")
    for kind in files.WAY_OUT:
        if kind != "watch":
            with pytest.raises(InputError, match=f"holds watch, not {kind}; give "):
                files.load_file(state, kind)
        with pytest.raises(InputError, match="is not an oodshape file, or it is damaged .*; give "):
            files.load_file(other, kind)


DYING = """
import os, signal, sys
from oodshape.core.files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_run_left_is_taken_over(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    for _ in range(2):
        assert subprocess.run([sys.executable, "-c", DYING, str(out)], check=False).returncode == -signal.SIGKILL
        assert not out.exists()
    assert len(list(tmp_path.iterdir())) == 1
    with replacing(out) as temporary:
        assert temporary.read_bytes() == b""
        temporary.write_text("whole")
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    assert out.read_text() == "whole"
    mask = os.umask(0)
    os.umask(mask)
    assert out.stat().st_mode & 0o777 == 0o666 & ~mask


def test_an_error_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    out = tmp_path / "out.txt"
    out.write_text("before")

    def fail() -> None:
        with replacing(out) as temporary:
            temporary.write_text("half")
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]
    assert out.read_text() == "before"


def test_writers_of_one_file_take_turns(tmp_path: Path) -> None:
    out, wrong = tmp_path / "out.txt", []

    def write(text: str) -> None:
        for _ in range(20):
            with replacing(out) as temporary:
                for letter in text:
                    with temporary.open("a") as file:
                        file.write(letter)
            if out.read_text() not in texts:
                wrong.append(out.read_text())

    texts = ["aaaa", "bbbb", "cccc"]
    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert wrong == []
    assert [path.name for path in tmp_path.iterdir()] == ["out.txt"]


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


def test_the_cache_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/there")
    monkeypatch.setenv("OODSHAPE_CACHE", "")
    assert default_cache() == Path("/there/oodshape")
    monkeypatch.setenv("OODSHAPE_CACHE", "/here")
    assert default_cache() == Path("/here")
