"""The table that every renderer prints: methods by models, families or OOD sets, ranked column by column."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from pandas import DataFrame

from oodshape.benchmark.results import CONVENTION, Axis, RunResults
from oodshape.benchmark.spec import AUTHORS
from oodshape.core.errors import InputError
from oodshape.core.text import format_count, join_names
from oodshape.methods.records import OWN
from oodshape.metrics.registry import DEFAULT_METRICS, MAIN, Metric, find_metric
from oodshape.report.method_styles import table_block

TIED = " ="
AVERAGE = "Average"
KINDS = ("near", "far")  # of OOD sets, over which a column may be the mean


@dataclass(frozen=True)
class Column:
    """A column of every column group: a metric, or its mean over the near or the far OOD sets alone."""

    metric: Metric
    kind: str = ""

    @property
    def name(self) -> str:
        """Its name in files and in the page."""
        return f"{self.kind}_{self.metric.name}" if self.kind else self.metric.name

    @property
    def head(self) -> str:
        """Its short name."""
        return f"{self.kind} {self.metric.head}" if self.kind else self.metric.head


Columns = tuple[Column, ...]
DEFAULT_COLUMNS: Columns = tuple(Column(metric) for metric in DEFAULT_METRICS)


def parse_columns(text: str) -> Columns:
    """The columns of names with commas between them; near- and far- ask for means over these OOD sets alone.

    >>> [column.head for column in parse_columns("auroc,near-auroc,aupr-out")]
    ['AUROC', 'near AUROC', 'AUPR-out']
    """
    found = [_column(name.strip()) for name in text.split(",") if name.strip()]
    return tuple(dict.fromkeys(found)) or DEFAULT_COLUMNS


def _column(name: str) -> Column:
    kind, _, metric = name.replace("_", "-").partition("-")
    return Column(find_metric(metric), kind) if kind in KINDS else Column(find_metric(name))


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
    """A cell per column of one method in one column group, means over `over` of `full` possible results."""

    cells: tuple[Cell, ...]
    over: int = 0
    full: int = 0
    tied: bool = False  # with the best main metric of the column group
    failed: bool = False  # could not be run; a note says why

    def mark(self, compared: bool = True) -> str:
        """What follows values: a sign where `compared` ones are tied with the best, fewer results, or none."""
        part = f" ({self.over}/{self.full})" if 0 < self.over < self.full else ""
        return " failed" if self.failed else (TIED if self.tied and compared else "") + part


@dataclass(frozen=True)
class Line:
    """A method and its entries, one per column group; `rule` asks for a rule above it."""

    method: str
    entries: tuple[Entry, ...]
    rule: bool


@dataclass(frozen=True)
class Table:
    """A title, column groups with the same columns each, a line per method, and notes that belong to the numbers."""

    title: str
    groups: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]
    columns: Columns
    members: tuple[tuple[str, ...], ...]  # the models or OOD sets that each group is the mean over
    names: Mapping[str, str] = field(default_factory=dict)  # of methods in LaTeX, where not their display names


def make_table(
    results: RunResults, by: Axis = "model", model: str | None = None, columns: Columns = DEFAULT_COLUMNS
) -> Table:
    """The table with a line per method and a group of columns per model or OOD set.

    Where there are several, the last group is their average; several near or far OOD sets have a mean before it.

    A model's value is the mean over its OOD sets. An OOD set's value is that of `model`, or the mean over models.
    A method is ranked in the columns where it has as many results as any other.
    """
    chosen = replace(results, rows=tuple(row for row in results.rows if model in (None, row.model)))
    if not chosen.rows:
        why = f"no model {model!r}, only {', '.join(results.names('model'))}" if results.rows else "no rows"
        raise InputError("; ".join([f"these results have {why}", *list_skipped(results)]))
    if by == "ood":
        columns = tuple(dict.fromkeys(replace(column, kind="") for column in columns))  # the kinds are groups here
    failed = [each.method for each in results.failed if model in (None, each.model)]
    methods = list(dict.fromkeys([*chosen.names("method"), *failed]))
    names = chosen.names(by)
    groups = _groups(chosen, by, names)
    places = [[names.index(name) for name in members] for _, members in groups]

    def wide(column: str, kind: str = "") -> DataFrame:
        """[names, methods], NaN where there is no result."""
        means = chosen.averages(by, kind)
        means = means if column in means else means.assign(**{column: np.nan})
        return means.pivot(index=by, columns="method", values=column).reindex(index=names, columns=methods)

    counts = wide("over").fillna(0).to_numpy(int)
    over = np.array([counts[place].sum(axis=0) for place in places])
    full = np.array([counts[place].max(axis=1).sum() for place in places])
    values = {column: wide(column.metric.name, column.kind) for column in columns}
    incomplete = bool(((over != full[:, None]) & (over.max(axis=0) > 0)).any())
    untested = incomplete or Column(MAIN) not in columns
    equal = [frozenset[str]() if untested else same for same in _ties(results, by, model, groups)]
    entries: list[list[Entry]] = []
    for place, same, found, most in zip(places, equal, over.tolist(), full.tolist(), strict=True):
        compared = [n == most for n in found]
        cells = [_cells(column.metric, values[column].iloc[place].mean(), compared) for column in columns]
        line = zip(methods, zip(*cells, strict=True), found, strict=True)
        entries.append([Entry(each, n, most, m in same, failed=not n and m in failed) for m, each, n in line])
    blocks = [table_block(method) for method in methods]
    rules = [False, *(a != b for a, b in pairwise(blocks))]
    return Table(
        title=f"OOD detection on {', '.join(chosen.names('benchmark'))}{f': {model}' if model else ''}",
        groups=tuple(name for name, _ in groups),
        lines=tuple(Line(*line) for line in zip(methods, zip(*entries, strict=True), rules, strict=True)),
        notes=(
            *_meaning(chosen, by, counts.max(axis=1).tolist(), columns),
            *_uncertainty(chosen, any(equal), columns),
            *list_caveats(results, incomplete=incomplete),
            *list_skipped(results),
        ),
        columns=columns,
        members=tuple(tuple(members) for _, members in groups),
    )


def _groups(chosen: RunResults, by: Axis, names: list[str]) -> list[tuple[str, list[str]]]:
    """The column groups, each with the names that it is the mean over; the average last, unless there is one alone."""
    found = [(name, [name]) for name in names]
    kinds: list[tuple[str, list[str]]] = []
    if by == "ood":
        kind_of = {row.ood: row.group for row in chosen.rows}
        kinds = [(kind, [name for name in names if kind_of[name] == kind]) for kind in KINDS]
        kinds = [(kind, sets) for kind, sets in kinds if 1 < len(sets) < len(names)]
    return [*found, *kinds, *([(AVERAGE, names)] if len(found) > 1 else [])]


def _ties(
    results: RunResults, by: Axis, model: str | None, groups: list[tuple[str, list[str]]]
) -> Iterator[frozenset[str]]:
    """For each column group, the methods that are tied with its best; "" is the mean over all."""
    found = {(each.model, each.ood): frozenset(each.tied) for each in results.ties}
    models = results.names("model")
    whole = model or (models[0] if len(models) == 1 else "")
    every = len({name for _, members in groups for name in members})
    for _, members in groups:
        alone = members[0] if len(members) == 1 else ""
        compared = alone or len(members) == every  # means over a kind were not
        key = (whole, alone) if by == "ood" else (alone or whole, "")
        yield found.get(key, frozenset()) if compared else frozenset()


def _uncertainty(results: RunResults, tied: bool, columns: Columns) -> Iterator[str]:
    """Ties with the best and the spread over seeds."""
    metrics = list(dict.fromkeys(column.metric for column in columns if column.metric.interval))
    if tied:
        yield (
            f"=: tied with the best {MAIN.head} of its column (no difference at 5 % on the same images; DeLong, "
            "corrected over all pairs of methods)."
        )
    rows = [row for row in results.rows if row.seeds > 1]
    if rows and metrics:
        most = [(metric.head, max(row.spreads.get(metric.name, 0.0) for row in rows)) for metric in metrics]
        names = sorted({row.method for row in rows})
        which = "all methods" if len(names) == len(results.names("method")) else ", ".join(names)
        yield (
            f"Means over {rows[0].seeds} seeds where a seed matters ({which}); the standard deviation over seeds on "
            f"one OOD set is at most {join_names([f'{100 * value:.2f} ({head})' for head, value in most])} points. "
            "Ties with the best are not marked."
        )


def _cells(metric: Metric, values: Iterable[float], compared: list[bool]) -> list[Cell]:
    """A column's cells; equal printed values share a rank, which is 1 + the number of better ones."""
    texts = [metric.show(value) for value in values]
    ranked = [ok and text != "-" for text, ok in zip(texts, compared, strict=True)]
    goods = [metric.sign * float(text) if ok else -np.inf for text, ok in zip(texts, ranked, strict=True)]
    ranks = [1 + sum(other > good for other in goods) for good in goods]
    return [Cell(text, rank if ok else 0) for text, rank, ok in zip(texts, ranks, ranked, strict=True)]


def _meaning(chosen: RunResults, by: Axis, full: list[int], columns: Columns) -> Iterator[str]:
    """What the numbers are, and over what they are averaged."""
    yield " ".join(dict.fromkeys(column.metric.note for column in columns))
    models, oods = chosen.names("model"), chosen.names("ood")
    groups = {row.ood: row.group for row in chosen.rows}
    kinds = [
        f"{kind}{': ' if kind else ''}{', '.join(ood for ood in oods if groups[ood] == kind)}"
        for kind in dict.fromkeys(groups.values())
    ]
    sets = f"{format_count(len(oods), 'OOD set')} ({'; '.join(kinds)})"
    if by == "ood":
        each = f"Each value is the mean over {format_count(len(models), 'model')}. " if len(models) > 1 else ""
        yield f"{each}Average: the mean over {sets}." if len(oods) > 1 else f"{each}On {sets}."
    else:
        few = [f", but {n} for {name}" for name, n in zip(models, full, strict=True) if n < len(oods)]
        yield f"Each value is the mean over {sets}{''.join(few)}."
        if len(models) > 1:
            yield f"Average: the mean over {format_count(len(models), 'model')}."


def list_caveats(results: RunResults, incomplete: bool) -> Iterator[str]:
    """List the conventions and what a reader needs to know before comparing with other results."""
    yield f"Convention: {results.provenance.get('convention', CONVENTION)}."
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
    for overlap in results.provenance.get("overlaps", ()):
        yield f"Not valid: {overlap}."
    custom = [name for name in results.names("method") if table_block(name) == OWN]
    if custom:
        yield f"Custom methods, which are not part of oodshape: {', '.join(custom)}."
    if incomplete:
        yield "(n/m): the mean over n of m results, not ranked. -: no result."


def list_skipped(results: RunResults) -> list[str]:
    """A note for each model and OOD set that was left out, and for each method that failed."""
    failures = [f"Failed: {each.method} on {each.model}: {each.why}" for each in results.failed]
    return [*(f"Skipped {what}: {why}" for what, why in results.skipped), *failures]
