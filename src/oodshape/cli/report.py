"""oodshape report: parses, calls, prints."""

from __future__ import annotations

from typing import Literal

from oodshape.cli.shared_options import ColumnsOption, ResultsArgument
from oodshape.cli.terminal import console, say


def report(
    results: ResultsArgument,
    table: Literal["model", "ood", "standard4"] = "model",
    columns: ColumnsOption = "",
    compare_paper: bool = False,
) -> None:
    """Print the tables of a benchmark run, and write tables and HTML report from the saved results.

    Writes report.html, table.md and table.tex. The report is one file that opens in any browser and needs no network: a
    leaderboard that sorts and filters, and each method's figures and ROC curves.

    Args:
        table: By model (model), by OOD set (ood), or by model on the standard four sets (standard4).
        compare_paper: Show the paper's figures and the difference next to ours.
    """
    from oodshape.benchmark.results import RunResults
    from oodshape.report.benchmark_files import print_report, write_report
    from oodshape.report.tables.table import parse_columns

    folder = results if results.is_dir() else results.parent
    loaded, shown = RunResults.load(results), parse_columns(columns)
    write_report(loaded, folder, table, paper=compare_paper, columns=shown)
    print_report(loaded, console(), table, paper=compare_paper, columns=shown)
    say(f"page: {folder / 'report.html'}")
