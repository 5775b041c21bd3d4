"""What users build on stays: public names, commands and options, as docs/stability.md lists them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import typer

import oodshape
from oodshape.cli.app import app

ROOT = Path(__file__).parents[1]
KEPT = json.loads((ROOT / "tests" / "golden" / "0.1.0" / "public.json").read_text())


def listed() -> list[str]:
    """The names in the table of docs/stability.md."""
    section = (ROOT / "docs" / "stability.md").read_text().partition("## Names")[2].partition("## Files")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_the_page_lists_every_public_name_once() -> None:
    assert sorted(listed()) == sorted(oodshape.__all__)


def test_every_public_name_is_there() -> None:
    for name in oodshape.__all__:
        assert getattr(oodshape, name) is not None


def test_the_names_of_earlier_releases_are_there() -> None:
    assert len(KEPT["names"]) == 30
    assert set(KEPT["names"]) <= set(oodshape.__all__)


def test_the_commands_and_options_of_earlier_releases_are_there() -> None:
    commands = typer.main.get_command(app).commands
    assert len(KEPT["commands"]) == 12
    for name, options in KEPT["commands"].items():
        known = {word for parameter in commands[name].params for word in (*parameter.opts, *parameter.secondary_opts)}
        assert set(options) <= known, name
