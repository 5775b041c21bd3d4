"""A benchmark run as files: results, tables and the page."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.plan import Plan
from oodshape.benchmark.results import RunResults
from oodshape.benchmark.run import run_plan
from oodshape.benchmark.spec import Benchmark
from oodshape.core.files import replacing
from oodshape.report.pages.benchmark_page import write_benchmark_page
from oodshape.report.tables.markdown_latex import frame_latex, frame_markdown, to_latex, to_markdown
from oodshape.report.tables.named_tables import Kind, make_named_tables
from oodshape.report.tables.openood import openood_tables, show_openood
from oodshape.report.tables.table import DEFAULT_COLUMNS, Columns
from oodshape.report.tables.terminal import print_table

if TYPE_CHECKING:
    from rich.console import Console


def write_benchmark(benchmark: Benchmark, options: BenchOptions, folder: Path) -> RunResults:
    """Run a benchmark and write results, tables and page into the folder, with the score of every image."""
    results, scores = run_plan(Plan.of(benchmark, options))
    results.save(folder)
    scores.save(folder)
    write_report(results, folder)
    return results


def write_report(
    results: RunResults, folder: Path, kind: Kind = "model", *, paper: bool = False, columns: Columns = DEFAULT_COLUMNS
) -> None:
    """Write report.html, table.md and table.tex; the tables start with those of the kind asked for."""
    tables = make_named_tables(results, kind, paper=paper, columns=columns)
    tables += [] if kind == "ood" else make_named_tables(results, "ood", columns=columns)
    folder.mkdir(parents=True, exist_ok=True)
    write_benchmark_page(results, folder / "report.html", columns)
    for name, render, render_frame in (
        ("table.md", to_markdown, frame_markdown),
        ("table.tex", to_latex, frame_latex),
    ):
        texts = [*(render_frame(*part) for part in openood_tables(results)), *map(render, tables)]
        with replacing(folder / name) as temporary:
            temporary.write_text("\n".join(texts), encoding="utf-8")


def print_report(
    results: RunResults,
    console: Console,
    kind: Kind = "model",
    *,
    paper: bool = False,
    columns: Columns = DEFAULT_COLUMNS,
) -> None:
    """Print the tables of results, the best by their first column on top."""
    show_openood(results, console)
    for part in make_named_tables(results, kind, paper=paper, columns=columns, ranked=True):
        print_table(part, console)
