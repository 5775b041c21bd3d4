"""oodshape inspect: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.shared_options import JsonOption
from oodshape.cli.terminal import say, show_json


def inspect(guard: Annotated[Path, typer.Argument(metavar="GUARD")], json: JsonOption = False) -> None:
    """Show what a guard contains: method, threshold, guarantee, preprocessing, network, classes.

    Args:
        guard: A file that fit or export wrote.
    """
    from oodshape.core import files
    from oodshape.guard.describe import GuardContents, facts, lines
    from oodshape.guard.export.guarded_file import GuardedFile

    if guard.suffix == ".onnx":
        found, width = GuardedFile(guard, threads=1).metadata.facts(), 18
        rows = list(found.items())
    else:
        contents = GuardContents.read(guard)
        with files.reading(guard, files.WAY_OUT["detector"]):
            found, width = facts(contents), 14
            rows = list(lines(contents))
    if json:
        show_json(found)
        return
    for what, value in rows:
        say(f"{what:<{width}} {value}")
