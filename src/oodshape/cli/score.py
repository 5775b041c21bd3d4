"""oodshape score, inspect and check: they parse, call and print."""

from __future__ import annotations

import json as encoder
import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from oodshape.cli.options import (
    ASPECT,
    IMAGES,
    INFLATED,
    PIXELS,
    UNREADABLE,
    BatchOption,
    ClassesOption,
    ColumnOption,
    CropOption,
    DetectorOption,
    DeviceOption,
    HeadOption,
    InterpolationOption,
    MaxAspectOption,
    MaxInflatedOption,
    MaxPixelsOption,
    MeanOption,
    ModelOption,
    PrecisionOption,
    QuietOption,
    ResizeOption,
    StdOption,
    WeightsOption,
    WorkersOption,
    check_out,
    flags,
    source,
    use_limits,
    warnings_as_lines,
)


def score(
    detector: DetectorOption,
    model: ModelOption,
    images: Annotated[str, typer.Option(help=f"The images to score: {IMAGES}.")],
    weights: WeightsOption = None,
    out: Annotated[
        Path | None, typer.Option(help="scores.csv, .jsonl or .parquet \\[default: CSV on standard output].")
    ] = None,
    column: ColumnOption = None,
    gallery: Annotated[Path | None, typer.Option(help="A page with the most and the least trusted images.")] = None,
    num_classes: ClassesOption = None,
    resize: ResizeOption = "",
    crop: CropOption = None,
    mean: MeanOption = "",
    std: StdOption = "",
    interpolation: InterpolationOption = None,
    head: HeadOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = None,
    batch_size: BatchOption = 32,
    workers: WorkersOption = None,
    max_pixels: MaxPixelsOption = PIXELS,
    max_aspect: MaxAspectOption = ASPECT,
    max_inflated: MaxInflatedOption = INFLATED,
    json: Annotated[
        bool, typer.Option("--json", help="JSON lines on standard output; with --out the summary as JSON.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Score images: class, score, p-value, accepted or not, in the order given.

    With --out, a run that was stopped goes on where it was. Images that cannot be read have a row with the error,
    and the exit status is 3. The preprocessing comes from the guard; flags that differ from it are an error.
    """
    from oodshape.core.reading import any_names
    from oodshape.guard.guard import Guard
    from oodshape.guard.score_file import score_to_file, score_to_stream
    from oodshape.images.listing import in_column, one_by_one
    from oodshape.report.gallery_page import Extremes, write_gallery

    use_limits(max_pixels, max_aspect, max_inflated)
    check_out(out, gallery)
    guard = Guard.load(detector)
    said = flags(resize, crop, mean, std, interpolation)
    with warnings_as_lines():
        network = source(guard, model, weights, num_classes, said, head=head, device=device, precision=precision)
    listing = one_by_one(in_column(images, column))
    extremes = Extremes()
    how: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "watch": extremes.add}
    if out is None:
        tally = score_to_stream(guard, network, listing, any_names(sys.stdout), json_lines=json, **how)
    else:
        show = False if json or quiet else None
        tally = score_to_file(guard, network, listing, out, progress=show, **how)
    if gallery is not None:
        write_gallery(extremes, gallery, listing.opened)
    if out is not None and json:
        typer.echo(encoder.dumps(vars(tally) | {"out": str(out)}))
    elif not quiet:
        for line in [*tally.lines(), *(f"wrote {file}" for file in (out, gallery) if file is not None)]:
            typer.echo(line, err=out is None)
    if tally.unreadable:
        raise typer.Exit(UNREADABLE)


def inspect(
    detector: Annotated[Path, typer.Argument(metavar="FILE", help="The file that fit wrote.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show what a guard is: method, threshold, promise, preprocessing, network, classes."""
    from oodshape.core.files import is_verified
    from oodshape.guard.describe import facts, lines
    from oodshape.guard.guard import Guard

    guard, verified = Guard.load(detector), is_verified(detector)
    if json:
        typer.echo(encoder.dumps(facts(guard) | {"verified": verified}))
        return
    checked = "verified: its checksum is right" if verified else "unverified (written by 0.1.0)"
    for what, value in [*lines(guard), ("file", checked)]:
        typer.echo(f"{what:<14} {value}")


def check(
    detector: DetectorOption,
    model: ModelOption,
    id: Annotated[str, typer.Option(help=f"Images that the network should accept: {IMAGES}.")],
    ood: Annotated[list[str], typer.Option(help="Images that it should reject; may be given several times.")],
    weights: WeightsOption = None,
    out: Annotated[Path | None, typer.Option(help="The page to write, such as check.html.")] = None,
    num_classes: ClassesOption = None,
    head: HeadOption = None,
    device: DeviceOption = "auto",
    precision: PrecisionOption = None,
    batch_size: BatchOption = 32,
    workers: WorkersOption = None,
    max_pixels: MaxPixelsOption = PIXELS,
    max_aspect: MaxAspectOption = ASPECT,
    max_inflated: MaxInflatedOption = INFLATED,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Check a guard on images of your own: how many of each set it accepts, beside a threshold on the softmax."""
    from rich.console import Console

    from oodshape.guard.check import check_guard
    from oodshape.guard.guard import Guard
    from oodshape.images.listing import one_by_one
    from oodshape.report.check_page import HEAD, NOTE, check_rows, verdict, write_check
    from oodshape.report.columns import show_columns

    use_limits(max_pixels, max_aspect, max_inflated)
    check_out(out)
    guard = Guard.load(detector)
    names = [one_by_one(each).name for each in ood]
    sets = dict(zip(names if len(set(names)) == len(names) else ood, ood, strict=True))
    show = False if json or quiet else None
    with warnings_as_lines():
        network = source(guard, model, weights, num_classes, {}, head=head, device=device, precision=precision)
        found = check_guard(guard, network, id, sets, batch_size=batch_size, workers=workers, progress=show)
    if out is not None:
        write_check(found, out)
    if json:
        said = {"rejected_id": found.rejected, "promised": found.promised, "sets": found.rows()}
        typer.echo(encoder.dumps(said | {"unreadable": found.unreadable}))
    elif not quiet:
        show_columns(HEAD, check_rows(found), Console(highlight=False))
        typer.echo(NOTE)
        typer.echo(verdict(found))
        for path, why in list(found.unreadable.items())[:1]:
            typer.echo(f"{len(found.unreadable):,} could not be read; {path}: {why}")
        if out is not None:
            typer.echo(f"page: {out}")
    if found.unreadable:
        raise typer.Exit(UNREADABLE)
