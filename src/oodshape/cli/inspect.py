"""oodshape inspect: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.terminal import say


def inspect(
    detector: Annotated[Path, typer.Argument(metavar="FILE", help="The file that fit wrote.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show what a guard is: method, threshold, promise, preprocessing, network, classes."""
    from oodshape.guard.describe import facts, lines
    from oodshape.guard.guard import Guard

    guard = Guard.load(detector)
    if json:
        typer.echo(encoder.dumps(facts(guard)))
        return
    for what, value in lines(guard):
        say(f"{what:<14} {value}", indent=15)
