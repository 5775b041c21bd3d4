"""The files for schedulers say what the command line knows."""

from __future__ import annotations

import re
import shlex
import subprocess
from pathlib import Path

import pytest
import typer

from oodshape.cli.app import app

SCALE = Path(__file__).parents[2] / "examples" / "scale"


@pytest.mark.parametrize("name", ["slurm.sh", "kubernetes-job.yaml", "ray-cluster.yaml"])
def test_every_command_and_option_exists(name: str) -> None:
    text = re.sub(r"\\\n[#\s]*", " ", (SCALE / name).read_text())
    lines = re.findall(r"oodshape ((?:fit|collect|score|merge) [^\n;`']*)", text)
    assert lines
    group = typer.main.get_command(app)
    for line in lines:
        command, *words = shlex.split(line.replace("|| [ $? -eq 3 ]", ""), comments=True)
        known = {flag for option in group.commands[command].params for flag in option.opts}
        assert {word for word in words if word.startswith("--")} <= known, line


def test_the_script_is_one() -> None:
    assert subprocess.run(["bash", "-n", str(SCALE / "slurm.sh")], check=False).returncode == 0


@pytest.mark.parametrize("name", ["kubernetes-job.yaml", "ray-cluster.yaml"])
def test_the_yaml_is_sound(name: str) -> None:
    yaml = pytest.importorskip("yaml", reason="needs PyYAML")
    assert isinstance(yaml.safe_load((SCALE / name).read_text()), dict)
