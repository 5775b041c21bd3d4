"""The tables that a user asks for by name."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from oodshape.benchmark.results import Results, convention
from oodshape.core.errors import InputError
from oodshape.metrics.detection import Positive
from oodshape.report.method_styles import CHOICE, family
from oodshape.report.tables.measures import MEASURES, Order
from oodshape.report.tables.paper import beside_paper, paper_figures
from oodshape.report.tables.table import Line, Table, table

Kind = Literal["model", "ood", "standard4", "groups"]
STANDARD4 = ("iNaturalist", "SUN", "Places", "Texture")  # the sets of MOS, on which most papers report


def tables_of(results: Results, kind: Kind = "model", *, paper: bool = False, sort: Order = "table") -> list[Table]:
    """The tables of a kind; with `paper` the paper's figures stand beside ours.

    model: by model, means over OOD sets. ood: one table per model, by OOD set. standard4: by model, over four
    OOD sets only. groups: by family of models. `sort` is the order of the lines.
    """
    if kind == "ood":
        models = results.names("model")
        known = [model for model in models if any(place[0::2] == ("ood", model) for place in paper_figures())]
        return [by_ood(results, model, paper=paper and model in (known or models), sort=sort) for model in models]
    if kind == "standard4":
        results = standard4(results)
    elif kind not in ("model", "groups"):
        raise InputError(f"there is no table {kind!r}; there are model, ood, standard4, groups")
    made = ordered(table(results, "family" if kind == "groups" else "model"), sort)
    if kind == "standard4":
        made = replace(made, title=f"{made.title}, the standard four OOD sets")
    return [beside_paper(made, results, kind) if paper else made]


def with_positive(results: Results, positive: Positive) -> Results:
    """The results with this side as the positive one of FPR95; OOD is OpenOOD's convention."""
    if positive == results.provenance.get("positive", "id"):
        return results
    ends = ("", "_low", "_high")
    rows = (replace(row, **{f"fpr95{end}": getattr(row, f"fpr95_ood{end}") for end in ends}) for row in results.rows)
    said = {**results.provenance, "positive": positive, "convention": convention(positive)}
    return replace(results, rows=tuple(rows), provenance=said, averages_of=())  # which take ID as positive


def by_ood(results: Results, model: str, *, paper: bool = False, sort: Order = "table") -> Table:
    """One model's table by OOD set."""
    made = ordered(table(results, "ood", model), sort)
    return beside_paper(made, results, "ood", model) if paper else made


def standard4(results: Results) -> Results:
    """The results on iNaturalist, SUN, Places and Texture alone."""
    rows = tuple(row for row in results.rows if row.ood in STANDARD4)
    if not rows:
        raise InputError(
            f"standard4 is over {', '.join(STANDARD4)}; these results have {', '.join(results.names('ood'))}"
        )
    return replace(results, rows=rows, ties=(), averages_of=())  # which are over all sets


def ordered(table: Table, by: Order) -> Table:
    """The lines by a measure in the last column, its mean over all; methods that choose among the others stand first.

    Lines that are equal as printed keep the order of the table, and those without a value stand last.
    """
    if by == "table":
        return table
    place = [measure.name for measure in table.measures].index(by)
    best = next(measure.best for measure in MEASURES if measure.name == by)

    def key(line: Line) -> tuple[bool, bool, float]:
        text = line.entries[-1].cells[place].text
        return family(line.method) != CHOICE, text == "-", 0.0 if text == "-" else -best * float(text)

    lines = sorted(table.lines, key=key)
    choosing = sum(family(line.method) == CHOICE for line in lines)
    ruled = (replace(line, rule=0 < place == choosing) for place, line in enumerate(lines))
    return replace(table, lines=tuple(ruled))
