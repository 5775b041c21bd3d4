"""The table that every renderer prints: methods by models or by OOD sets, ranked column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from oodshape.errors import InputError
from oodshape.results import Axis, Results, convention


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


def table(results: Results, columns: Axis = "model", model: str | None = None) -> Table:
    """The table with a line per method and a pair of columns per model or per OOD set; the last is the average.

    A model's value is the mean over its OOD sets. An OOD set's value is that of `model`, or the mean over models.
    A method is ranked in the columns where it has as many results as any other.
    """
    chosen = replace(results, rows=tuple(row for row in results.rows if model in (None, row.model)))
    if not chosen.rows:
        why = f"no model {model!r}, only {', '.join(results.names('model'))}" if results.rows else "no rows"
        raise InputError("; ".join([f"these results have {why}", *_skipped(results)]))
    methods, groups = chosen.names("method"), chosen.names(columns)
    means = chosen.averages(columns)

    def wide(column: str) -> NDArray[np.float64]:
        """[groups, methods], NaN where there is no result."""
        pivot = means.pivot(index=columns, columns="method", values=column)
        return pivot.loc[groups, methods].to_numpy(np.float64)

    over = np.nan_to_num(wide("over")).astype(int)
    full = over.max(axis=1)
    over, full = np.vstack([over, over.sum(axis=0)]), np.append(full, full.sum())
    fp, au = (np.vstack([values, np.nanmean(values, axis=0)]) for values in (wide("fpr95"), wide("auroc")))
    pairs = [_pairs(fp[j], au[j], over[j].tolist(), int(n)) for j, n in enumerate(full)]
    recipes = results.provenance.get("methods", {})
    blocks = [_block(method, str(recipes.get(method, ""))) for method in methods]
    rules = [False, *(a != b for a, b in pairwise(blocks))]
    return Table(
        title=f"OOD detection on {', '.join(chosen.names('benchmark'))}" + (f": {model}" if model else ""),
        groups=(*groups, "Average"),
        lines=tuple(Line(*line) for line in zip(methods, zip(*pairs, strict=True), rules, strict=True)),
        notes=(
            *_meaning(chosen, columns, full[:-1].tolist()),
            *_caveats(results, incomplete=bool((over != full[:, None]).any())),
        ),
    )


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


def _block(method: str, recipe: str) -> int:
    """The paper's three blocks of methods, without shaping, with shaping, with OptFS, and those since the paper."""
    from oodshape.methods import NEWER

    if method in NEWER:
        return 3
    return 2 if "OptFS(" in recipe else 0 if "shape=Identity()" in recipe else 1


def _meaning(chosen: Results, columns: Axis, full: list[int]) -> Iterator[str]:
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
        yield f"Each value is the mean over {sets}{''.join(few)}."
        yield f"Average: the mean over {_count(len(models), 'model')}."
    if columns == "ood" and len(models) == 1:
        fp = max(row.fpr95_high - row.fpr95_low for row in chosen.rows)
        au = max(row.auroc_high - row.auroc_low for row in chosen.rows)
        yield f"The 95 % bootstrap intervals are up to {100 * fp:.1f} (FP) and {100 * au:.1f} (AU) points wide."


def _caveats(results: Results, incomplete: bool) -> Iterator[str]:
    """The convention, and what a reader must know before comparing with other results."""
    positive = results.provenance.get("positive", "id")
    yield f"Convention: {results.provenance.get('convention', convention(positive))} (positive: {positive})."
    limit = results.provenance.get("settings", {}).get("limit")
    if limit is not None:
        yield f"Only a subset was used: at most {limit} images per set (limit {limit})."
    if incomplete:
        yield "(n/m): the mean over n of m results, not ranked. -: no result."
    yield from _skipped(results)


def _skipped(results: Results) -> list[str]:
    return [f"Skipped {what}: {why}" for what, why in results.skipped]


def _count(n: int, noun: str) -> str:
    return f"{n} {noun}" if n == 1 else f"{n} {noun}s"
