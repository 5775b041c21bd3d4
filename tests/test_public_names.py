"""The public names are those that docs/guarantees.md lists."""

from __future__ import annotations

import re
from pathlib import Path

import oodshape

ROOT = Path(__file__).parents[1]


def listed() -> list[str]:
    """The names in the table of docs/guarantees.md."""
    section = (ROOT / "docs" / "guarantees.md").read_text().partition("## Names")[2].partition("## Files")[0]
    rows = [line for line in section.splitlines() if line.startswith("| ")]
    return [name for row in rows for name in re.findall(r"`(\w+)`", row)]


def test_the_page_lists_every_public_name_once() -> None:
    assert sorted(listed()) == sorted(oodshape.__all__)


def test_every_public_name_is_there() -> None:
    for name in oodshape.__all__:
        assert getattr(oodshape, name) is not None
