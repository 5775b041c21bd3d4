"""oodshape decide: parses, calls, prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.terminal import say
from oodshape.core.files import check_writable


def decide(
    scores: Annotated[str, typer.Argument(metavar="SCORES", help="The finished CSV, JSON lines or Parquet of score.")],
    fdr: Annotated[
        float, typer.Option(help="The expected fraction of in-distribution images among those flagged.")
    ] = 0.1,
    storey: Annotated[
        bool,
        typer.Option("--storey", help="Estimate how many images are in-distribution: flags more if many are OOD."),
    ] = False,
    guard: Annotated[
        Path | None, typer.Option(help="The guard that scored them: it must match; it holds the calibration set size.")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="All rows with a column flagged: .csv, .jsonl or .parquet \\[default: flagged rows as CSV]."),
    ] = None,
) -> None:
    """Flag OOD images of a finished set together, with an expected false discovery rate of at most --fdr.

    The threshold of `score` bounds the fraction of in-distribution images that are rejected. If few images are OOD,
    most of the rejected ones may still be in-distribution. This command bounds the fraction of these among the flagged
    images: Benjamini-Hochberg on the p-values of all images.
    """
    from oodshape.core.files import any_names
    from oodshape.guard.scoring.decide import Calibration, decide_scores, write_decisions
    from oodshape.guard.scoring.score_formats import write_csv

    check_writable(out)
    calibration = Calibration.of(guard) if guard is not None else None
    found = decide_scores(scores, fdr, storey=storey, calibration=calibration)
    if out is not None:
        write_decisions(found, out)
    else:
        write_csv((row for row in found.table() if row["flagged"]), any_names(sys.stdout))
    for line in [*found.lines(), *([f"wrote {out}"] if out is not None else [])]:
        say(line, err=out is None)
