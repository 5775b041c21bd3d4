"""oodshape inspect: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import JsonOption
from oodshape.cli.terminal import say


def inspect(
    guard: Annotated[Path, typer.Argument(metavar="GUARD", help="A file that fit or export wrote.")],
    trust_code: Annotated[
        bool, typer.Option("--trust-code", help="Import the module of a class of your own that the guard names.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Show what a guard contains: method, threshold, guarantee, preprocessing, network, classes."""
    from oodshape.guard.describe import facts, lines
    from oodshape.guard.guard import Guard

    if guard.suffix == ".onnx":
        from oodshape.guard.export.guarded_file import GuardedFile

        exported = GuardedFile(guard, threads=1).metadata.facts()
        if json:
            typer.echo(encoder.dumps(exported))
            return
        for what, value in exported.items():
            say(f"{what:<18} {value}", indent=19)
        return
    fitted = Guard.load(guard, trust_code=trust_code)
    if json:
        typer.echo(encoder.dumps(facts(fitted)))
        return
    for what, value in lines(fitted):
        say(f"{what:<14} {value}", indent=15)
