"""A run with several seeds: which of its methods hang on the seed, and the mean and spread of their figures."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import mean, stdev

from oodshape.benchmark.prepared import Prepared
from oodshape.benchmark.results import METRICS, Row
from oodshape.core.values import reseeded
from oodshape.images.image_set import Subset


def further(prepared: Prepared) -> Iterator[Prepared]:
    """The same run with each further seed, of the methods that hang on it: all of them where images are drawn."""
    options = prepared.options
    drawn = any(isinstance(images, Subset) for images in prepared.sets.values())
    methods = [
        name
        for name, method in prepared.methods.items()
        if drawn or method.wants_panel or reseeded(method, 1) != method
    ]
    for step in range(1, options.seeds if methods else 1):
        again = replace(options, seed=options.seed + step, seeds=1, methods=tuple(methods), samples=0)
        yield Prepared.of(prepared.benchmark, again)


def merged(rows: Sequence[Row], more: Sequence[Sequence[Row]]) -> tuple[Row, ...]:
    """The rows with means over all seeds and the standard deviation; those that no seed changes stay as they are."""
    others: dict[tuple[str, str, str], list[Row]] = {}
    for row in (row for part in more for row in part):
        others.setdefault((row.model, row.method, row.ood), []).append(row)
    return tuple(_mean([row, *others.get((row.model, row.method, row.ood), [])]) for row in rows)


def _mean(rows: Sequence[Row]) -> Row:
    if len(rows) == 1:
        return rows[0]
    ends = [name + end for name in METRICS for end in ("", "_low", "_high")]
    ends += ["fpr95_other"] if all(row.fpr95_other is not None for row in rows) else []
    means = {name: mean(getattr(row, name) for row in rows) for name in ends}
    spreads = {f"{name}_spread": stdev(getattr(row, name) for row in rows) for name in ("fpr95", "auroc")}
    return replace(rows[0], **means, **spreads, seeds=len(rows), seconds=sum(row.seconds for row in rows))
