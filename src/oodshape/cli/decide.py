"""oodshape decide: parses, calls, prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.terminal import say
from oodshape.core.files import check_writable


def decide(
    scores: Annotated[str, typer.Argument(metavar="SCORES")],
    fdr: float = 0.1,
    storey: bool = False,
    guard: Path | None = None,
    out: Path | None = None,
) -> None:
    """Flag OOD images of a finished set together, with an expected false discovery rate of at most --fdr.

    The threshold of `score` bounds the fraction of in-distribution images that are rejected. If few images are OOD,
    most of the rejected ones may still be in-distribution. This command bounds the fraction of these among the flagged
    images: Benjamini-Hochberg on the p-values of all images.

    Args:
        scores: The finished CSV, JSON lines or Parquet of score.
        fdr: The expected fraction of in-distribution images among those flagged.
        storey: Estimate how many images are in-distribution: flags more if many are OOD.
        guard: The guard that scored them: it must match; it holds the calibration set size.
        out: All rows with a column flagged: .csv, .jsonl or .parquet [default: flagged rows as CSV].
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
    say(*found.lines(), *([f"wrote {out}"] if out is not None else []), err=out is None)
