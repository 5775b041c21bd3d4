"""oodshape review: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from oodshape.cli.terminal import say
from oodshape.core.errors import InputError
from oodshape.core.files import check_writable
from oodshape.core.text import format_count


def review(
    scores: Annotated[
        str | None, typer.Argument(metavar="SCORES", help="The CSV, JSON lines or Parquet of score \\[or --labels].")
    ] = None,
    *,
    out: Annotated[Path, typer.Option(help="The file to write.")],
    to: Annotated[
        Literal["label-studio", "csv"],
        typer.Option(metavar="TOOL", help="label-studio (tasks to import) or csv (a column label)."),
    ] = "csv",
    up_to: Annotated[
        float | None,
        typer.Option(help="The largest p-value of a borderline image \\[default: 2 x that of a rejected]."),
    ] = None,
    sample: Annotated[
        int | None, typer.Option(help="A random sample of all images instead, accepted and rejected.")
    ] = None,
    root: Annotated[Path, typer.Option(help="The folder of images that Label Studio serves.")] = Path("."),
    labels: Annotated[
        Path | None,
        typer.Option(help="Write a list of images from labels: Label Studio's JSON export, or the labelled CSV."),
    ] = None,
    take: Annotated[
        Literal["ood", "id"],
        typer.Option(
            metavar="LABEL", help="Images of the list: ood for `check`, id for `calibrate` (only of --sample)."
        ),
    ] = "ood",
) -> None:
    """Let people label rejected and borderline images, and turn their labels into an OOD set for `check`.

    Labels are ood and id (a valid input). Labels of rejected images do not make a calibration set, which is a random
    sample of valid inputs, accepted and rejected alike: --sample draws one to label.
    """
    from oodshape.guard.scoring import review as reviewing

    check_writable(out)
    if (scores is None) == (labels is None):
        raise InputError("give SCORES to write images to label, or --labels FILE to read labels")
    if sample is not None and up_to is not None:
        raise InputError("give --up-to or --sample, not both")
    if labels is not None:
        found, counts = reviewing.read_labels(labels, take)
        reviewing.write_list(found, out)
        say(f"{labels}: {counts['ood']:,} ood, {counts['id']:,} id, {counts['']:,} without one clear label")
        say(f"list: {out}; next: oodshape {'check --ood' if take == 'ood' else 'calibrate --images'} {out} ...")
    elif scores is not None:
        rows = reviewing.select_rows(scores, up_to) if sample is None else reviewing.sample_rows(scores, sample)
        reviewing.write_review(rows, out, None if to == "csv" else root)
        if to != "csv":
            say(f"labelling interface: {reviewing.INTERFACE}")
        say(f"{out}: {format_count(len(rows), 'image')} to label; next: oodshape review --labels FILE --out ood.csv")
