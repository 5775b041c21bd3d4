"""The tables that a user asks for by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal, get_args

from oodshape.benchmark.results import RunResults
from oodshape.core.errors import InputError
from oodshape.report.method_styles import CHOICE, method_family
from oodshape.report.tables.paper import STANDARD4, compare_with_paper, paper_figures
from oodshape.report.tables.table import DEFAULT_COLUMNS, Columns, Line, Table, make_table

Kind = Literal["model", "ood", "standard4"]


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
