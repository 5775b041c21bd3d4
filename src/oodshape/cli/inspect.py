"""oodshape inspect: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import TrustOption
from oodshape.cli.terminal import say


def inspect(
    detector: Annotated[Path, typer.Argument(metavar="FILE", help="The file that fit or export wrote.")],
    trust_code: TrustOption = False,
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show what a guard is: method, threshold, promise, preprocessing, network, classes."""
    from oodshape.core.files import is_verified
    from oodshape.guard.describe import facts, lines
    from oodshape.guard.guard import Guard

    if detector.suffix == ".onnx":
        from oodshape.guard.export.guarded_file import GuardedFile

        exported = GuardedFile(detector, threads=1).metadata.facts()
        if json:
            typer.echo(encoder.dumps(exported))
            return
        for what, value in exported.items():
            say(f"{what:<18} {value}", indent=19)
        return
    guard, verified = Guard.load(detector, trust_code=trust_code), is_verified(detector)
    if json:
        typer.echo(encoder.dumps(facts(guard) | {"verified": verified}))
        return
    checked = "verified: its checksum is right" if verified else "unverified (written by 0.1.0)"
    for what, value in [*lines(guard), ("file", checked)]:
        say(f"{what:<14} {value}", indent=15)
