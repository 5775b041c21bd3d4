"""A file takes its place whole or not at all, and a killed run leaves nothing that the next does not clear."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from oodshape.core.files import replacing

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
