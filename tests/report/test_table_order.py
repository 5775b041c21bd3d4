"""The order of a printed table, and the sentences below it, which agree with the table and with the docs."""

from __future__ import annotations

from dataclasses import replace

from oodshape.benchmark.results import Results
from oodshape.report.tables.kinds import ordered, tables_of
from oodshape.report.tables.table import DEFAULT_COLUMNS, table
from synthetic import row

AUROC = {"msp": 0.93, "energy": 0.95, "optfs-e": 0.94, "mds": 0.99, "knn": 0.99, "auto": 0.98}


def by_hand(**more: float) -> Results:
    """Two networks with the same figures; FPR95 is what is missing to an AUROC of 1."""
    every = AUROC | more
    rows = [row(net, name, fpr95=1 - au, auroc=au) for net in ("a", "b") for name, au in every.items()]
    return Results(tuple(rows), {"methods": dict.fromkeys(every, "")})


def names(made: Results, sort: str) -> list[str]:
    return [line.method for line in tables_of(made, sort=sort)[0].lines]


def test_the_best_stand_on_top_below_the_one_that_chooses() -> None:
    assert names(by_hand(), "auroc") == ["auto", "mds", "knn", "energy", "optfs-e", "msp"]
    assert names(by_hand(), "fpr95") == names(by_hand(), "auroc")
    assert names(by_hand(), "table") == list(AUROC)
    assert [line.rule for line in ordered(table(by_hand()), DEFAULT_COLUMNS[0]).lines] == [False, True, *[False] * 4]
    without = replace(by_hand(), rows=tuple(each for each in by_hand().rows if each.method != "auto"))
    assert not any(line.rule for line in ordered(table(without), DEFAULT_COLUMNS[0]).lines)


def test_a_method_without_a_result_stands_last() -> None:
    some = replace(by_hand(), rows=tuple(each for each in by_hand().rows if (each.model, each.method) != ("b", "mds")))
    (made,) = tables_of(some, "ood", sort="auroc")[1:]
    assert "mds" not in [line.method for line in made.lines]
    lines = ordered(table(some, "ood"), DEFAULT_COLUMNS[0]).lines
    assert [line.method for line in lines][:2] == ["auto", "mds"]  # on one network it has a mean
    cells = [replace(line.entries[0].cells[0], text="-") for line in table(some).lines[:1]]
    blank = replace(table(some).lines[0], entries=(replace(table(some).lines[0].entries[0], cells=(*cells, cells[0])),))
    assert (
        ordered(replace(table(some), lines=(blank, *table(some).lines[1:])), DEFAULT_COLUMNS[0]).lines[-1].method
        == "msp"
    )
