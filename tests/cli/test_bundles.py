"""Bundles of options, and what every command that runs a network takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from commands import call
from oodshape.benchmark.results import Results
from oodshape.cli.app import app

COMMANDS = typer.main.get_command(app).commands
SPEC = """name = "own"
[id]
train = "digits:train"
test = "digits:test"
[[ood]]
name = "letters"
group = "near"
images = "digits:letters"
[[ood]]
name = "gaussian"
group = "far"
images = "digits:gaussian"
[[ood]]
name = "uniform"
group = "far"
images = "digits:uniform"
[[models]]
name = "own_models:two_outputs"
label = "two"
"""


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_commands_with_a_network_take_its_options_and_flags_show_no_type(name: str) -> None:
    known = {flag for option in COMMANDS[name].params for flag in option.opts}
    if known & {"--model", "--models"}:
        assert {"--weights", "--device", "--precision", "--trust-code"} <= known
    said = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "100"}).output
    assert "--help" in said
    assert "bool" not in said.lower()
    narrow = CliRunner().invoke(app, [name, "--help"], env={"COLUMNS": "80"}).output
    assert max(map(len, narrow.splitlines())) <= 80
    assert not re.search(r"<[^>│]*\|[^>]*│", narrow)  # a list of choices that goes on in the next line


def test_the_commands_have_few_options() -> None:
    slots = [each for name in COMMANDS for each in COMMANDS[name].params if each.param_type_name == "option"]
    assert len([each for each in slots if each.name != "help"]) <= 180


FEW = ("--trust-code", "--limit", "20", "--cache", "none", "--device", "cpu", "--out", "here")


@pytest.mark.parametrize(
    "command",
    [
        ("bench", "own.toml", "--methods", "msp", "--samples", "0", "--quiet"),
        ("study", "shaping", "--benchmark", "own.toml"),
    ],
)
def test_the_head_is_named_where_it_is_not_found(command: tuple[str, ...], tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(SPEC)
    done = call(*command, *FEW, cwd=tmp_path)
    assert done.returncode == 2
    assert "which one are the logits?" in done.stderr
    (tmp_path / "own.toml").write_text(SPEC + 'head = "net.nothing"\n')
    done = call(*command, *FEW, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("error: two: head='net.nothing' is not in ")
    (tmp_path / "own.toml").write_text(SPEC + 'head = "net.head"\n')
    assert call(*command, *FEW, cwd=tmp_path).returncode == 0


def test_a_benchmark_names_the_head_of_a_network(tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text(SPEC + 'head = "net.head"\n')
    done = call("bench", "own.toml", "--methods", "msp", "--samples", "0", "--quiet", *FEW, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = Results.load(tmp_path / "here").rows
    (tmp_path / "own.toml").write_text(SPEC.replace("two_outputs", "own_net"))
    done = call("bench", "own.toml", "--methods", "msp", "--samples", "0", "--quiet", *FEW, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert [row.value("auroc") for row in rows] == [row.value("auroc") for row in Results.load(tmp_path / "here").rows]
