"""The paper's figures beside ours: each column followed by the paper's and by the difference."""

from __future__ import annotations

import csv
from collections.abc import Iterable
from dataclasses import replace
from functools import cache
from importlib.resources import files
from importlib.resources.abc import Traversable
from statistics import mean

from oodshape.benchmark.results import Results
from oodshape.core.errors import InputError
from oodshape.core.reading import reading
from oodshape.report.measures import MEASURES, Measure
from oodshape.report.pivot import Cell, Entry, Line, Table, families

Figures = dict[str, float]  # in percent, by the measure's name
Place = tuple[str, str, str, str]  # table, ID set, model, OOD set


@cache
def paper_figures() -> dict[Place, dict[str, Figures]]:
    """The paper's figures by place and method; the OOD set is `Average` where a model's mean is printed."""
    return figures_in(files(__package__) / "paper.csv")


def figures_in(path: Traversable) -> dict[Place, dict[str, Figures]]:
    """The figures of a CSV file with the columns table, id_set, model, ood, method and a measure each."""
    found: dict[Place, dict[str, Figures]] = {}
    with reading(str(path)):
        for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
            place = (line["table"], line["id_set"], line["model"], line["ood"])
            figures = {measure.name: float(line[measure.name]) for measure in MEASURES if measure.name in line}
            found.setdefault(place, {})[line["method"]] = figures
    return found


def beside_paper(table: Table, results: Results, kind: str, model: str | None = None) -> Table:
    """The table with two more groups of columns after each: the paper's figures, and ours minus the paper's.

    `kind` is what the columns are: model, ood (of `model`), standard4 or groups. The paper's average is that of
    the columns that are here, so that both averages are over the same models or sets.
    """
    several = len(table.groups) > 1
    names = table.groups[:-1] if several else table.groups
    columns = _columns(results, kind, model, names)
    if several:
        columns.append(_averaged(columns) if kind != "groups" else _averaged(_models(results, "model")))
    if not any(columns):
        raise InputError(f"the paper has no figures for {', '.join(names)}; leave --compare-paper out")
    lines = []
    for line in table.lines:
        entries: list[Entry] = []
        for entry, figures in zip(line.entries, columns, strict=True):
            entries += [entry, *_beside(entry, table.measures, figures.get(line.method, {}))]
        lines.append(Line(line.method, tuple(entries), line.rule))
    heads = [part for name in table.groups for part in (name, f"{name} (paper)", f"{name} (difference)")]
    return replace(table, groups=tuple(heads), lines=tuple(lines), notes=(*table.notes, *_notes(kind)))


def _columns(results: Results, kind: str, model: str | None, names: Iterable[str]) -> list[dict[str, Figures]]:
    """The paper's figures of each column, empty where it has none."""
    id_set = comparable(results)
    if kind == "ood":
        return [paper_figures().get(("ood", id_set, str(model), name), {}) for name in names]
    if kind == "groups":
        return [_averaged(_models(results, "model", group)) for group in families(results).values()]
    return _models(results, kind)


def _models(results: Results, table: str, names: list[str] | None = None) -> list[dict[str, Figures]]:
    """The figures of the models, by default of all that are in the results."""
    wanted = results.names("model") if names is None else names
    return [paper_figures().get((table, comparable(results), name, "Average"), {}) for name in wanted]


def _averaged(columns: list[dict[str, Figures]]) -> dict[str, Figures]:
    """The mean over the columns of each method that the paper has in all of them."""
    methods = set.intersection(*(set(column) for column in columns))
    return {
        method: {name: mean(column[method][name] for column in columns) for name in columns[0][method]}
        for method in methods
    }


def check_comparable(settings: str, positive: str) -> None:
    """Refuse a comparison with figures of other settings, or of the other convention."""
    if positive != "id":
        raise InputError("the paper's FPR95 takes ID as positive; leave out --positive ood or --compare-paper")
    known = sorted({place[1] for place in paper_figures()})
    if settings not in known:
        raise InputError(f"--compare-paper needs the paper's settings for {', '.join(known)}, got {settings!r}")


def comparable(results: Results) -> str:
    """The ID set whose figures to compare with: that of the paper's settings, or of those of its authors' code."""
    said = results.provenance.get("settings", {})
    id_set = str(said.get("id_set", said.get("settings", "general")))
    check_comparable(id_set, str(results.provenance.get("positive", "id")))
    return id_set


def _beside(entry: Entry, measures: Iterable[Measure], paper: Figures) -> tuple[Entry, Entry]:
    """The paper's figures and the differences, both as printed, neither ranked."""
    theirs, gaps = [], []
    for cell, measure in zip(entry.cells, measures, strict=True):
        text = f"{paper[measure.name]:.2f}" if measure.name in paper else "-"
        theirs.append(Cell(text))
        gaps.append(Cell("-" if "-" in (cell.text, text) else f"{float(cell.text) - float(text):+.2f}"))
    return Entry(tuple(theirs)), Entry(tuple(gaps))


def _notes(kind: str) -> Iterable[str]:
    yield "(paper): as the paper prints it (Zhao et al., ICLR 2024). (difference): ours minus the paper's."
    if kind != "ood":
        sets = "four" if kind == "standard4" else "eight"
        yield f"The paper's figures are means over all {sets} OOD sets and full data sets, whatever was used here."
