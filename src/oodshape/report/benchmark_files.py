"""A benchmark run as files: results, the tables that a user asks for by name, and the page."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args

from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.plan import Plan
from oodshape.benchmark.results import RunResults
from oodshape.benchmark.run import run_plan
from oodshape.benchmark.spec import Benchmark
from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.report.method_styles import CHOICE, method_family
from oodshape.report.pages.benchmark_page import write_benchmark_page
from oodshape.report.tables.markdown_latex import frame_latex, frame_markdown, to_latex, to_markdown
from oodshape.report.tables.openood import openood_tables, show_openood
from oodshape.report.tables.paper import STANDARD4, compare_with_paper, paper_figures
from oodshape.report.tables.table import DEFAULT_COLUMNS, Columns, Line, Table, make_table
from oodshape.report.tables.terminal import print_table

if TYPE_CHECKING:
    from rich.console import Console

Kind = Literal["model", "ood", "standard4"]


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
    for name, render, render_frame in (("table.md", to_markdown, frame_markdown), ("table.tex", to_latex, frame_latex)):
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


def make_named_tables(
    results: RunResults,
    kind: Kind = "model",
    *,
    paper: bool = False,
    columns: Columns = DEFAULT_COLUMNS,
    ranked: bool = False,
) -> list[Table]:
    """The tables of a kind.

    Args:
        results: What was measured.
        kind: model: by model, means over OOD sets. ood: one table per model, by OOD set. standard4: by model, over
            four OOD sets only.
        paper: Whether the paper's figures stand next to ours.
        columns: The columns of each model or OOD set.
        ranked: Whether the best by the first column stand on top; otherwise methods are in the order of their records.
    """
    if kind == "standard4":
        results = keep_standard_sets(results)
    elif kind not in get_args(Kind):
        raise InputError(f"there is no table {kind!r}; there are {', '.join(get_args(Kind))}")
    models = results.names("model") if kind == "ood" else [None]
    in_paper = [model for model in models if any(place[0::2] == ("ood", model) for place in paper_figures())]
    tables = []
    for model in models:
        made = make_table(results, "ood" if kind == "ood" else "model", model, columns)
        made = sort_lines(made) if ranked else made
        if kind == "standard4":
            made = replace(made, title=f"{made.title}, the standard four OOD sets")
        compared = paper and model in (in_paper or models)
        tables.append(compare_with_paper(made, results, kind, model) if compared else made)
    return tables


def keep_standard_sets(results: RunResults) -> RunResults:
    """The results on iNaturalist, SUN, Places and Texture alone."""
    rows = tuple(row for row in results.rows if row.ood in STANDARD4)
    if not rows:
        raise InputError(
            f"standard4 is over {', '.join(STANDARD4)}; these results have {', '.join(results.names('ood'))}"
        )
    return replace(results, rows=rows, ties=(), averages_of=())  # which are over all sets


def sort_lines(table: Table) -> Table:
    """The lines by the first column of the last group, the mean over all; methods that choose among others stand first.

    Lines that are equal as printed keep the order of the table, and those without a value stand last.
    """

    def key(line: Line) -> tuple[bool, float]:
        text = line.entries[-1].cells[0].text
        value = float("inf") if text == "-" else -table.columns[0].metric.sign * float(text)
        return method_family(line.method) != CHOICE, value

    lines = sorted(table.lines, key=key)
    choosing = sum(method_family(line.method) == CHOICE for line in lines)
    ruled = (replace(line, rule=0 < place == choosing) for place, line in enumerate(lines))
    return replace(table, lines=tuple(ruled))
