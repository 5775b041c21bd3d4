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
    scores: Annotated[str | None, typer.Argument(metavar="SCORES")] = None,
    *,
    out: Path,
    to: Literal["label-studio", "csv"] = "csv",
    sample: int | None = None,
    root: Path = Path("."),
    labels: Path | None = None,
    take: Literal["ood", "id"] = "ood",
) -> None:
    """Let people label rejected and borderline images, and turn their labels into an OOD set for `check`.

    Labels are ood and id (a valid input). Labels of rejected images do not make a calibration set, which is a random
    sample of valid inputs, accepted and rejected alike: --sample draws one to label.

    Args:
        scores: The CSV, JSON lines or Parquet of score [or --labels].
        out: The file to write.
        to: label-studio (tasks to import) or csv (a column label).
        sample: A random sample of all images instead, accepted and rejected.
        root: The folder of images that Label Studio serves.
        labels: Write a list of images from labels: Label Studio's JSON export, or the labelled CSV.
        take: Images of the list: ood for `check`, id for `calibrate` (only of --sample).
    """
    from oodshape.guard.scoring import review as reviewing

    check_writable(out)
    if (scores is None) == (labels is None):
        raise InputError("give SCORES to write images to label, or --labels FILE to read labels")
    if labels is not None:
        found, counts, selected = reviewing.read_labels(labels, take)
        reviewing.write_list(found, out)
        say(f"{labels}: {counts['ood']:,} ood, {counts['id']:,} id, {counts['']:,} without one clear label")
        if selected and take == "ood":
            say(
                "these images were selected because the guard rejected or almost rejected them: `check` on them shows "
                "too few accepted; label images of --sample N to measure the guard",
                err=True,
            )
        say(f"list: {out}; next: oodshape {'check --ood' if take == 'ood' else 'calibrate --images'} {out} ...")
    elif scores is not None:
        rows = reviewing.select_rows(scores) if sample is None else reviewing.sample_rows(scores, sample)
        reviewing.write_review(rows, out, None if to == "csv" else root)
        if to != "csv":
            say(f"labelling interface: {reviewing.INTERFACE}")
        then = "--out ood.csv" if sample is None else "--take id --out calibration.csv"
        say(f"{out}: {format_count(len(rows), 'image')} to label; next: oodshape review --labels FILE {then}")
