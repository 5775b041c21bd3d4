"""The table that every renderer prints: methods by models, families or OOD sets, ranked column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from oodshape.benchmark.results import Axis, Results, convention
from oodshape.core.errors import InputError

Columns = Literal["model", "ood", "family"]


@dataclass(frozen=True)
class Cell:
    """A value as it is printed, in percent, and its place in the column from 1 on; 0 = not compared."""

    text: str
    rank: int


@dataclass(frozen=True)
class Pair:
    """FPR95 and AUROC of one method in one column group, means over `over` of `full` possible results."""

    fp: Cell
    au: Cell
    over: int
    full: int

    @property
    def mark(self) -> str:
        """What follows a value that is a mean over fewer results than others of its column."""
        return f" ({self.over}/{self.full})" if 0 < self.over < self.full else ""


@dataclass(frozen=True)
class Line:
    """A method and its pairs; `rule` asks for a rule above it."""

    method: str
    pairs: tuple[Pair, ...]
    rule: bool


@dataclass(frozen=True)
class Table:
    """A title, column groups of FP and AU, a line per method, and notes that belong to the numbers."""

    title: str
    groups: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]


def table(results: Results, columns: Columns = "model", model: str | None = None) -> Table:
    """The table with a line per method and a pair of columns per model, OOD set or family; the last is the average.

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
    places = [[names.index(name) for name in group] for group in (*members.values(), names)]
    counts = np.nan_to_num(wide("over")).astype(int)
    over = np.array([counts[place].sum(axis=0) for place in places])
    full = np.array([counts[place].max(axis=1).sum() for place in places])
    fp, au = ([_mean(values[place]) for place in places] for values in (wide("fpr95"), wide("auroc")))
    pairs = [_pairs(fp[j], au[j], over[j].tolist(), int(n)) for j, n in enumerate(full)]
    recipes = results.provenance.get("methods", {})
    blocks = [block(method, str(recipes.get(method, ""))) for method in methods]
    rules = [False, *(a != b for a, b in pairwise(blocks))]
    return Table(
        title=_title(chosen, model),
        groups=(*members, "Average"),
        lines=tuple(Line(*line) for line in zip(methods, zip(*pairs, strict=True), rules, strict=True)),
        notes=(
            *_meaning(chosen, columns, counts.max(axis=1).tolist()),
            *caveats(results, incomplete=bool((over != full[:, None]).any())),
        ),
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
    return f"OOD detection on {', '.join(chosen.names('benchmark'))}" + (f": {model}" if model else "") + other


def _mean(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """[n, methods] -> [methods]: the mean over what is there, NaN for nothing."""
    there = ~np.isnan(values)
    sums = np.where(there, values, 0.0).sum(axis=0)
    return np.asarray(np.where(there.any(axis=0), sums / np.maximum(there.sum(axis=0), 1), np.nan))


def _pairs(fp: Iterable[float], au: Iterable[float], over: list[int], full: int) -> list[Pair]:
    compared = [n == full for n in over]
    columns = (_cells(fp, compared, best=-1), _cells(au, compared, best=1), over)
    return [Pair(*entry, full) for entry in zip(*columns, strict=True)]


def _cells(values: Iterable[float], compared: list[bool], best: int) -> list[Cell]:
    """A column's cells; equal printed values share a rank, which is 1 + the number of better ones."""
    texts = ["-" if np.isnan(value) else f"{100 * value:.2f}" for value in values]
    goods = [best * float(text) if ok else -np.inf for text, ok in zip(texts, compared, strict=True)]
    ranks = [1 + sum(other > good for other in goods) for good in goods]
    return [Cell(text, rank if ok else 0) for text, rank, ok in zip(texts, ranks, compared, strict=True)]


def block(method: str, recipe: str) -> int:
    """The paper's three blocks of methods, without shaping, with shaping, with OptFS, and those since the paper."""
    from oodshape.methods.table import NEWER

    if method in NEWER:
        return 3
    return 2 if "OptFS(" in recipe else 0 if "shape=Identity()" in recipe else 1


def _meaning(chosen: Results, columns: Columns, full: list[int]) -> Iterator[str]:
    """What the numbers are, over what they are averaged, and how sure they are."""
    yield "FP: FPR95 in percent, lower is better. AU: AUROC in percent, higher is better."
    models, oods = chosen.names("model"), chosen.names("ood")
    groups = {row.ood: row.group for row in chosen.rows}
    kinds = [
        f"{kind}: {', '.join(ood for ood in oods if groups[ood] == kind)}" for kind in dict.fromkeys(groups.values())
    ]
    sets = f"{_count(len(oods), 'OOD set')} ({'; '.join(kinds)})"
    if columns == "ood":
        each = f"Each value is the mean over {_count(len(models), 'model')}. " if len(models) > 1 else ""
        yield f"{each}Average: the mean over {sets}."
    else:
        few = [f", but {n} for {name}" for name, n in zip(models, full, strict=True) if n < len(oods)]
        kinds = [f"{family}: {', '.join(group)}" for family, group in families(chosen).items()]
        each = f" and over the models of a family ({'; '.join(kinds)})" if columns == "family" else ""
        yield f"Each value is the mean over {sets}{''.join(few)}{each}."
        yield f"Average: the mean over {_count(len(models), 'model')}."
    if columns == "ood" and len(models) == 1:
        fp = max(row.fpr95_high - row.fpr95_low for row in chosen.rows)
        au = max(row.auroc_high - row.auroc_low for row in chosen.rows)
        yield f"The 95 % bootstrap intervals are up to {100 * fp:.1f} (FP) and {100 * au:.1f} (AU) points wide."


def caveats(results: Results, incomplete: bool) -> Iterator[str]:
    """The convention, and what a reader must know before comparing with other results."""
    positive = results.provenance.get("positive", "id")
    yield f"Convention: {results.provenance.get('convention', convention(positive))} (positive: {positive})."
    limit = results.provenance.get("settings", {}).get("limit")
    if limit is not None:
        yield f"Only a subset was used: at most {limit} images per set (limit {limit})."
    if incomplete:
        yield "(n/m): the mean over n of m results, not ranked. -: no result."
    yield from skipped_notes(results)


def skipped_notes(results: Results) -> list[str]:
    """A note for each model and OOD set that was left out."""
    return [f"Skipped {what}: {why}" for what, why in results.skipped]


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
