"""oodshape report: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.terminal import say


def report(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="A results.json, or the folder of a benchmark run.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write \\[default: report.html beside the results].")
    ] = None,
) -> None:
    """Write the page of a benchmark run again, from its results alone.

    The page is one file that opens in any browser and needs no network: a leaderboard that sorts and filters, the
    paper's figures where it has any, each method's figures, and the images that are hardest for it.
    """
    from oodshape.benchmark.results import Results
    from oodshape.report import write_page

    page = out or (results if results.is_dir() else results.parent) / "report.html"
    write_page(Results.load(results), page)
    say(f"page: {page}")
