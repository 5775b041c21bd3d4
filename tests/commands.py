"""The command line as a user calls it: in this process, or in a new one."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from oodshape.cli.main import main

MODEL = ("--model", "zoo:digits-convnet")
GUARD = ("--guard", "guard.safetensors", *MODEL)


def call(*words: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """The command line with these words."""
    out, err, before = io.StringIO(), io.StringIO(), os.getcwd()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr("sys.argv", ["oodshape", *words])
        patch.setattr("sys.stdin", io.StringIO(stdin))
        os.chdir(cwd)
        try:
            main()
            code = 0
        except SystemExit as stop:
            code = int(stop.code or 0)
        finally:
            os.chdir(before)
    # weak methods are fitted on purpose: the sanity check has tests of its own
    said = [line for line in err.getvalue().splitlines(keepends=True) if "the guard accepts" not in line]
    return subprocess.CompletedProcess(words, code, out.getvalue(), "".join(said))


def call_new(*words: str, cwd=None, **more: str) -> subprocess.CompletedProcess[str]:
    """The command line in a process of its own."""
    code = "from oodshape.cli import main; main()"
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1"} | more
    return subprocess.run(
        [sys.executable, "-c", code, *words], capture_output=True, text=True, cwd=cwd, env=environment, check=False
    )
