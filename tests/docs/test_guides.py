"""Every Python block and every command of the tutorial and of the guides to fit and check runs, in order."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from commands import call

DOCS = Path(__file__).parents[2] / "docs"


def test_the_guides_run_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OODSHAPE_CACHE", str(tmp_path / "cache"))
    said: dict[str, str] = {}
    for guide in ("tutorial", "guides/fit", "guides/check"):
        text = (DOCS / f"{guide}.md").read_text()
        names: dict[str, object] = {}
        for language, block in re.findall(r"```(\w*)\n(.*?)```", text, flags=re.DOTALL):
            if language == "python":
                exec(compile(block, guide, "exec"), names)
                if file := re.match(r"# (\w+\.py)\n", block):  # a block that is a file of the user's
                    (tmp_path / file[1]).write_text(block)
            elif block.startswith("oodshape"):
                for line in block.replace("\\\n", " ").strip().splitlines():
                    done = call(*shlex.split(line)[1:], cwd=tmp_path)
                    assert done.returncode == 0, (line, done.stderr)
                    said[shlex.split(line)[1]] = done.stdout
    assert set(said) == {"fit", "calibrate", "inspect", "score", "check"}
    assert "guarantee: expected false rejection rate <= 5 %" in said["fit"]
    assert "the guarantee holds" in said["check"]
    for file in ("guard.safetensors", "mine.safetensors", "scores.csv", "scores.html", "check.html"):
        assert (tmp_path / file).stat().st_size > 1000
    assert "expected false rejection rate" in capsys.readouterr().out
