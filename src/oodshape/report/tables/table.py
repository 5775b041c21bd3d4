"""The table that every renderer prints: methods by models, families or OOD sets, ranked column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from oodshape.benchmark.results import Axis, Results, convention
from oodshape.benchmark.spec import AUTHORS
from oodshape.core.errors import InputError
from oodshape.core.text import format_count
from oodshape.methods.records import OWN
from oodshape.report.method_styles import block
from oodshape.report.tables.measures import SHOWN, Measure

Columns = Literal["model", "ood", "family"]
TIED = " ="
AVERAGE = "Average"
SPREADS = {measure.head: measure.name for measure in SHOWN}  # of which results hold the spread over seeds


@dataclass(frozen=True)
class Cell:
    """A value as it is printed, in percent, and its place in the column from 1 on; 0 = not compared."""

    text: str
    rank: int = 0

    @property
    def place(self) -> int:
        """How it stands out: 0 for an ordinary value, 1 for the best, 2 for the second and third."""
        return (0, 1, 2, 2)[self.rank] if self.rank <= 3 else 0


@dataclass(frozen=True)
class Entry:
    """A cell per measure of one method in one column group, means over `over` of `full` possible results."""

    cells: tuple[Cell, ...]
    over: int = 0
    full: int = 0
    tied: bool = False  # with the best AUROC of the column

    @property
    def mark(self) -> str:
        """What follows the values: a sign where they are tied with the best, or a mean over fewer results."""
        return (TIED if self.tied else "") + (f" ({self.over}/{self.full})" if 0 < self.over < self.full else "")


@dataclass(frozen=True)
class Line:
    """A method and its entries, one per column group; `rule` asks for a rule above it."""

    method: str
    entries: tuple[Entry, ...]
    rule: bool


@dataclass(frozen=True)
class Table:
    """A title, column groups with the same measures each, a line per method, and notes that belong to the numbers."""

    title: str
    groups: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    measures: tuple[Measure, ...] = SHOWN


def table(
    results: Results, columns: Columns = "model", model: str | None = None, measures: tuple[Measure, ...] = SHOWN
) -> Table:
    """The table with a line per method and a group of columns per model, OOD set or family.

    Where there are several, the last group is their average.

    A model's value is the mean over its OOD sets. An OOD set's value is that of `model`, or the mean over models.
    A family's value is the mean over its models, and the average beside it that over all models.
    A method is ranked in the columns where it has as many results as any other.
    """
    chosen = replace(results, rows=tuple(row for row in results.rows if model in (None, row.model)))
    if not chosen.rows:
        why = f"no model {model!r}, only {', '.join(results.names('model'))}" if results.rows else "no rows"
        raise InputError("; ".join([f"these results have {why}", *skipped_notes(results)]))
    axis: Axis = "ood" if columns == "ood" else "model"
    methods, names = chosen.names("method"), chosen.names(axis)
    means = chosen.averages(axis)

    def wide(column: str) -> NDArray[np.float64]:
        """[names, methods], NaN where there is no result."""
        pivot = means.pivot(index=axis, columns="method", values=column)
        return pivot.loc[names, methods].to_numpy(np.float64)

    members = families(chosen) if columns == "family" else {name: [name] for name in names}
    averaged = [AVERAGE] if len(members) > 1 else []  # one alone is its own
    places = [[names.index(name) for name in group] for group in (*members.values(), *([names] if averaged else []))]
    counts = np.nan_to_num(wide("over")).astype(int)
    over = np.array([counts[place].sum(axis=0) for place in places])
    full = np.array([counts[place].max(axis=1).sum() for place in places])
    values = {measure: wide(measure.name) for measure in measures}
    groups = [
        _entries({measure: _mean(values[measure][place]) for measure in measures}, over[j].tolist(), int(full[j]))
        for j, place in enumerate(places)
    ]
    incomplete = bool((over != full[:, None]).any())
    equal = [frozenset[str]() if incomplete else same for same in _ties(results, columns, model, list(members))]
    equal = equal[: len(places)]
    groups = [
        [replace(entry, tied=method in same) for method, entry in zip(methods, group, strict=True)]
        for same, group in zip(equal, groups, strict=True)
    ]
    blocks = [block(method) for method in methods]
    rules = [False, *(a != b for a, b in pairwise(blocks))]
    return Table(
        title=_title(chosen, model),
        groups=(*members, *averaged),
        lines=tuple(Line(*line) for line in zip(methods, zip(*groups, strict=True), rules, strict=True)),
        notes=(
            *_meaning(chosen, columns, counts.max(axis=1).tolist(), measures),
            *_sureness(chosen, any(equal)),
            *caveats(results, incomplete=incomplete),
        ),
        measures=measures,
    )


def _ties(results: Results, columns: Columns, model: str | None, names: list[str]) -> Iterator[frozenset[str]]:
    """For each column and the average, the methods that are tied with its best AUROC; "" is the mean over all."""
    found = {(each.model, each.ood): frozenset(each.tied) for each in results.ties}
    models = results.names("model")
    whole = model or (models[0] if len(models) == 1 else "")
    for name in (*names, ""):
        known = columns != "family" or not name  # means over a family were not compared
        place = (whole, name) if columns == "ood" else (name or whole, "")
        yield found.get(place, frozenset()) if known else frozenset()


def _sureness(results: Results, tied: bool) -> Iterator[str]:
    """What chance has to do with the numbers: ties with the best, and the spread over seeds."""
    if tied:
        yield (
            "=: tied with the best AUROC of its column (no difference at 5 % on the same images; DeLong, corrected "
            "over all pairs of methods)."
        )
    if results.averages_of:
        wide = {
            head: max(getattr(each, f"{name}_high") - getattr(each, f"{name}_low") for each in results.averages_of)
            for head, name in SPREADS.items()
        }
        said = " and ".join(f"{100 * value:.1f} ({head})" for head, value in wide.items())
        yield f"The 95 % intervals of a network's mean over the OOD sets are up to {said} points wide."
    rows = [row for row in results.rows if row.seeds > 1]
    if rows:
        most = {head: max(getattr(row, f"{name}_spread") for row in rows) for head, name in SPREADS.items()}
        said = " and ".join(f"{100 * value:.2f} ({head})" for head, value in most.items())
        names = sorted({row.method for row in rows})
        which = "all methods" if len(names) == len(results.names("method")) else ", ".join(names)
        yield (
            f"Means over {rows[0].seeds} seeds where a seed matters ({which}); the standard deviation over seeds on "
            f"one OOD set is at most {said} points."
        )


def families(results: Results) -> dict[str, list[str]]:
    """The models of each family: ConvNets, transformers, MLPs."""
    found: dict[str, list[str]] = {}
    for model, family in {row.model: row.family for row in results.rows}.items():
        found.setdefault(f"{family}s", []).append(model)
    return found


def _title(chosen: Results, model: str | None) -> str:
    """What was measured, on what, and the convention where it is not the usual one."""
    other = " (OpenOOD's convention: OOD is positive)" if chosen.provenance.get("positive") == "ood" else ""
    of = f"OOD detection on {', '.join(chosen.names('benchmark'))}" + (f": {model}" if model else "")
    return of + other + departures(chosen)


def departures(results: Results) -> str:
    """What every head must say: that settings were chosen on OOD images."""
    on = results.provenance.get("settings", {}).get("tuned_on")
    return f" (settings chosen on OOD validation images: {on})" if on else ""


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, methods] -> [methods]: the mean over what is there, NaN for nothing."""
    there = ~np.isnan(values)
    sums = np.where(there, values, 0.0).sum(axis=0)
    return np.asarray(np.where(there.any(axis=0), sums / np.maximum(there.sum(axis=0), 1), np.nan))


def _entries(values: dict[Measure, NDArray[np.float64]], over: list[int], full: int) -> list[Entry]:
    """The entries of a column group, a method each."""
    compared = [n == full for n in over]
    columns = [_cells(column, compared, measure.best) for measure, column in values.items()]
    return [Entry(cells, n, full) for cells, n in zip(zip(*columns, strict=True), over, strict=True)]


def _cells(values: Iterable[float], compared: list[bool], best: int) -> list[Cell]:
    """A column's cells; equal printed values share a rank, which is 1 + the number of better ones."""
    texts = ["-" if np.isnan(value) else f"{100 * value:.2f}" for value in values]
    goods = [best * float(text) if ok else -np.inf for text, ok in zip(texts, compared, strict=True)]
    ranks = [1 + sum(other > good for other in goods) for good in goods]
    return [Cell(text, rank if ok else 0) for text, rank, ok in zip(texts, ranks, compared, strict=True)]


def _meaning(chosen: Results, columns: Columns, full: list[int], measures: tuple[Measure, ...]) -> Iterator[str]:
    """What the numbers are, over what they are averaged, and how sure they are."""
    yield " ".join(measure.note for measure in measures)
    models, oods = chosen.names("model"), chosen.names("ood")
    groups = {row.ood: row.group for row in chosen.rows}
    kinds = [
        f"{kind}: {', '.join(ood for ood in oods if groups[ood] == kind)}" for kind in dict.fromkeys(groups.values())
    ]
    sets = f"{format_count(len(oods), 'OOD set')} ({'; '.join(kinds)})"
    if columns == "ood":
        each = f"Each value is the mean over {format_count(len(models), 'model')}. " if len(models) > 1 else ""
        yield f"{each}Average: the mean over {sets}." if len(oods) > 1 else f"{each}On {sets}."
    else:
        few = [f", but {n} for {name}" for name, n in zip(models, full, strict=True) if n < len(oods)]
        kinds = [f"{family}: {', '.join(group)}" for family, group in families(chosen).items()]
        each = f" and over the models of a family ({'; '.join(kinds)})" if columns == "family" else ""
        yield f"Each value is the mean over {sets}{''.join(few)}{each}."
        if len(families(chosen) if columns == "family" else models) > 1:
            yield f"Average: the mean over {format_count(len(models), 'model')}."
    if columns == "ood" and len(models) == 1:
        wide = {m.head: (chosen.frame[f"{m.name}_high"] - chosen.frame[f"{m.name}_low"]).max() for m in measures}
        said = " and ".join(f"{100 * width:.1f} ({head})" for head, width in wide.items())
        yield f"The 95 % bootstrap intervals are up to {said} points wide."


def caveats(results: Results, incomplete: bool) -> Iterator[str]:
    """The convention, and what a reader must know before comparing with other results."""
    positive = results.provenance.get("positive", "id")
    yield f"Convention: {results.provenance.get('convention', convention(positive))} (positive: {positive})."
    limit = results.provenance.get("settings", {}).get("limit")
    if limit is not None:
        yield f"Only a subset was used: at most {limit} images per set (limit {limit})."
    said = results.provenance.get("settings", {})
    if said.get("settings") == AUTHORS:
        yield f"Settings: those of the authors' code for {said['id_set']}, where it departs from the paper."
    if said.get("spectrum"):
        yield f"Full spectrum ({said['spectrum']}): images of {', '.join(said['shifted'])} count as ID."
    if said.get("lists"):
        yield f"Lists of images: {said['lists']}."
    custom = [name for name in results.names("method") if block(name) == OWN]
    if custom:
        yield f"Custom methods, which are not part of oodshape: {', '.join(custom)}."
    if incomplete:
        yield "(n/m): the mean over n of m results, not ranked. -: no result."
    yield from skipped_notes(results)


def skipped_notes(results: Results) -> list[str]:
    """A note for each model and OOD set that was left out."""
    return [f"Skipped {what}: {why}" for what, why in results.skipped]
