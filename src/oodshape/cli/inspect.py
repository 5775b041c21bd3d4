"""oodshape inspect: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import JsonOption
from oodshape.cli.terminal import say


def inspect(
    guard: Annotated[Path, typer.Argument(metavar="GUARD", help="The guard: a file that fit wrote.")],
    json: JsonOption = False,
) -> None:
    """Show what a guard contains: method, threshold, guarantee, preprocessing, network, classes."""
    from oodshape.guard.describe import facts, lines
    from oodshape.guard.guard import Guard

    fitted = Guard.load(guard)
    if json:
        typer.echo(encoder.dumps(facts(fitted)))
        return
    for what, value in lines(fitted):
        say(f"{what:<14} {value}", indent=15)
