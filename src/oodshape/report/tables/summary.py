"""The summary of results: sentences below the printed table, and the answer of each network on the page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from oodshape.benchmark.results import Results, Row
from oodshape.core.text import join_names
from oodshape.methods.records import BASELINE, FEATURED
from oodshape.report.method_styles import CHOICE, family
from oodshape.report.tables.measures import ERROR, MAIN, SHOWN
from oodshape.report.tables.table import Line, table

ERRORS = {"id": "accept{} {} % of OOD images", "ood": "reject{} {} % of ID images"}  # what FPR95 counts


@dataclass(frozen=True)
class Mean:
    """A method's means over the OOD sets of a network, and its place by AUROC from 1 on."""

    method: str
    auroc: float
    fpr95: float
    place: int


@dataclass(frozen=True)
class Answer:
    """One network: its best methods by AUROC and FPR95, the featured method and `auto` (None where not measured)."""

    model: str
    family: str
    methods: int
    best: Mean
    tied: tuple[str, ...]  # methods that cannot be told from the best by AUROC
    lowest: Mean
    featured: Mean | None
    worst: tuple[Row, Row] | None  # the featured method where it loses most, and the best method there
    auto: Mean | None


def answers(results: Results) -> Iterator[Answer]:
    """The answer of each network; methods that lack an OOD set are left out, since their means do not compare."""
    means = results.averages("model")
    families = {row.model: row.family for row in results.rows}
    ties = {each.model: each.tied for each in results.ties if not each.ood}
    for model in results.names("model"):
        here = means[means["model"] == model]
        here = here[here["over"] == here["over"].max()].sort_values("auroc", ascending=False, kind="stable")
        ranked = [
            Mean(line.method, line.auroc, line.fpr95, 1 + int((here["auroc"] > line.auroc).sum()))
            for line in here.itertuples()
        ]
        best = ranked[0]
        same = f"{100 * best.auroc:.2f}"  # equal as printed is no difference
        alike = {*ties.get(model, ()), *(entry.method for entry in ranked if f"{100 * entry.auroc:.2f}" == same)}
        tied = tuple(entry.method for entry in ranked[1:] if entry.method in alike)
        featured = next((entry for entry in ranked if entry.method == FEATURED), None)
        auto = next((entry for entry in ranked if family(entry.method) == CHOICE), None)
        lowest = min(ranked, key=lambda entry: entry.fpr95)
        worst = _largest_gap(results, model)
        yield Answer(model, families[model], len(ranked), best, tied, lowest, featured, worst, auto)


def _largest_gap(results: Results, model: str) -> tuple[Row, Row] | None:
    """The featured method's row on the OOD set of a network where it loses most AUROC, and the best row there."""
    best: dict[str, Row] = {}
    rows = [row for row in results.rows if row.model == model]
    for row in rows:
        if row.auroc > best.setdefault(row.ood, row).auroc:
            best[row.ood] = row
    pairs = [(row, best[row.ood]) for row in rows if row.method == FEATURED]
    return max(pairs, key=lambda pair: pair[1].auroc - pair[0].auroc, default=None)


def summarize(results: Results) -> list[str]:
    """Sentences on the best method, and on where `auto`, the baseline and the featured method are, as printed."""
    lines = [line for line in table(results).lines if _rank(line)]
    if len(lines) < 2:
        return []
    errors = ERRORS[str(results.provenance.get("positive", "id"))]
    best = [line for line in lines if _rank(line) == 1]
    tied = [line.method for line in lines if line.entries[-1].tied and _rank(line) > 1]
    equal = f" (tied with {join_names(tied)})" if tied else ""
    have, s = ("has", "s") if len(best) == 1 else ("have", "")
    places = [
        f"{line.method} is number {_rank(line)} of {len(lines)} (AUROC {_text(line, MAIN)}, FPR95 {_text(line, ERROR)})"
        for line in sorted(lines, key=lambda line: family(line.method) != CHOICE)
        if _rank(line) > 1 and (line.method in (BASELINE, FEATURED) or family(line.method) == CHOICE)
    ]
    return [
        f"{join_names([line.method for line in best])} {have} the highest AUROC, {_text(best[0], MAIN)}{equal}, and "
        f"{errors.format(s, join_names([_text(line, ERROR) for line in best]))}.",
        *(["; ".join(places) + "."] if places else []),
    ]


def _place(measure: str) -> int:
    return [each.name for each in SHOWN].index(measure)


def _text(line: Line, measure: str) -> str:
    return line.entries[-1].cells[_place(measure)].text


def _rank(line: Line) -> int:
    return line.entries[-1].cells[_place(MAIN)].rank
