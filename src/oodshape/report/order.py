"""The order of a table's lines: as the methods stand in the paper, or the best on top."""

from __future__ import annotations

from dataclasses import replace

from oodshape.report.measures import MEASURES, Order
from oodshape.report.method_kinds import CHOICE, family
from oodshape.report.pivot import Line, Table


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
