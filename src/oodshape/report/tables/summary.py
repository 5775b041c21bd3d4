"""The summary of results: sentences below the printed table, and the best methods of each network on the page."""

from __future__ import annotations

from oodshape.benchmark.results import Results
from oodshape.core.text import join_names
from oodshape.methods.records import BASELINE, FEATURED
from oodshape.metrics.registry import DEFAULT_METRICS, ERROR, MAIN, Metric
from oodshape.report.method_styles import CHOICE, family
from oodshape.report.tables.table import Cell, Entry, Line, Table, table

NAMED = 3  # of the methods tied with the best, where these are many
BEST_HEAD = ("network", "best", "tied with it", MAIN.head, ERROR.head, f"best {ERROR.head}", "auto")


def best_methods(overview: Table) -> list[list[str]]:
    """The rows below `BEST_HEAD`, one per column group of a table by model; methods that lack an OOD set are left out.

    `auto` is the method that chooses without OOD data.
    """
    rows = []
    for place, network in enumerate(overview.groups):
        entries = {line.method: line.entries[place] for line in overview.lines if _cell(line.entries[place], MAIN).rank}
        best = [name for name, entry in entries.items() if _cell(entry, MAIN).rank == 1]
        tied = [name for name, entry in entries.items() if entry.tied and name not in best]
        few = tied if len(tied) <= NAMED + 1 else [*tied[:NAMED], f"{len(tied) - NAMED} others"]
        fewest = [name for name, entry in entries.items() if _cell(entry, ERROR).rank == 1]
        numbers = [_cell(entries[best[0]], metric).text for metric in (MAIN, ERROR)]
        lowest = f"{_cell(entries[fewest[0]], ERROR).text} ({', '.join(fewest)})"
        auto = [_cell(entry, MAIN).text for name, entry in entries.items() if family(name) == CHOICE]
        rows.append([network, ", ".join(best), ", ".join(few), *numbers, lowest, ", ".join(auto)])
    return rows


def summarize(results: Results) -> list[str]:
    """Sentences on the best method, and on where `auto`, the baseline and the featured method are, as printed."""
    lines = [line for line in table(results).lines if _rank(line)]
    if len(lines) < 2:
        return []
    best = [line for line in lines if _rank(line) == 1]
    tied = [line.method for line in lines if line.entries[-1].tied and _rank(line) > 1]
    equal = f" (tied with {join_names(tied)})" if tied else ""
    have, s = ("has", "s") if len(best) == 1 else ("have", "")
    places = [
        f"{line.method} is number {_rank(line)} of {len(lines)} "
        f"({MAIN.head} {_text(line, MAIN)}, {ERROR.head} {_text(line, ERROR)})"
        for line in sorted(lines, key=lambda line: family(line.method) != CHOICE)
        if _rank(line) > 1 and (line.method in (BASELINE, FEATURED) or family(line.method) == CHOICE)
    ]
    return [
        f"{join_names([line.method for line in best])} {have} the {MAIN.direction[:-1]}st {MAIN.head}, "
        f"{_text(best[0], MAIN)}{equal}, and "
        f"{ERROR.phrase.format(s=s, value=join_names([_text(line, ERROR) for line in best]))}.",
        *(["; ".join(places) + "."] if places else []),
    ]


def _cell(entry: Entry, metric: Metric) -> Cell:
    return entry.cells[DEFAULT_METRICS.index(metric)]


def _text(line: Line, metric: Metric) -> str:
    return _cell(line.entries[-1], metric).text


def _rank(line: Line) -> int:
    return _cell(line.entries[-1], MAIN).rank
