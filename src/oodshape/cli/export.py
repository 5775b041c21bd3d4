"""oodshape export: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import (
    ASPECT,
    IMAGES,
    INFLATED,
    PIXELS,
    ClassesOption,
    DetectorOption,
    HeadOption,
    MaxAspectOption,
    MaxInflatedOption,
    MaxPixelsOption,
    ModelOption,
    QuietOption,
    WeightsOption,
    check_out,
    use_limits,
)


def export(
    detector: DetectorOption,
    model: ModelOption,
    out: Annotated[Path, typer.Option(help="The file to write, such as guarded.onnx.")],
    weights: WeightsOption = None,
    images: Annotated[str | None, typer.Option(help=f"Compared on these \\[default: made-up ones]: {IMAGES}.")] = None,
    num_classes: ClassesOption = None,
    head: HeadOption = None,
    max_pixels: MaxPixelsOption = PIXELS,
    max_aspect: MaxAspectOption = ASPECT,
    max_inflated: MaxInflatedOption = INFLATED,
    json: Annotated[bool, typer.Option("--json", help="Print how it compares as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Write network and guard as one ONNX file: images -> logits, score, accepted.

    The threshold is an input with a default. Before the file is written the graph runs in onnxruntime and is compared
    with torch; if they disagree, no file is written. Needs the extra: pip install 'oodshape\\[onnx]'.
    """
    from oodshape.guard.guard import Guard

    use_limits(max_pixels, max_aspect, max_inflated)
    check_out(out)
    guard = Guard.load(detector)
    report = guard.export(out, model, weights=weights, num_classes=num_classes, head=head, images=images)
    if json:
        typer.echo(
            encoder.dumps({name: str(value) if name == "path" else value for name, value in vars(report).items()})
        )
    elif not quiet:
        typer.echo(str(report))
