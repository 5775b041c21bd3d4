"""oodshape export: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import IMAGES, Costs, DetectorOption, Network, QuietOption
from oodshape.cli.terminal import check_out, say


def export(
    *,
    detector: DetectorOption,
    network: Network,
    out: Annotated[Path, typer.Option(help="The file to write, such as guarded.onnx.")],
    images: Annotated[str | None, typer.Option(help=f"Compared on these \\[default: made-up ones]: {IMAGES}.")] = None,
    costs: Costs,
    json: Annotated[bool, typer.Option("--json", help="Print how it compares as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write network and guard as one ONNX file: images -> logits, score, accepted.

    The threshold is an input with a default. Before the file is written the graph runs in onnxruntime and is compared
    with torch; if they disagree, no file is written. Needs the extra: pip install 'oodshape\\[onnx]'.
    """
    from oodshape.guard.guard import Guard

    costs.hold()
    check_out(out)
    guard = Guard.load(detector, trust_code=network.trust_code)
    report = guard.export(out, network.model, images=images, **network.said())
    if json:
        typer.echo(
            encoder.dumps({name: str(value) if name == "path" else value for name, value in vars(report).items()})
        )
    elif not quiet:
        say(str(report))
