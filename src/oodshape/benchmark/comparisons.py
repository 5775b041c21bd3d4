"""Comparisons from the scores of a run: averages with intervals, ties with the best, and two methods in pairs."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import fmean
from types import MappingProxyType
from typing import Any

from oodshape.benchmark.kept_scores import KeptScores
from oodshape.core.errors import InputError
from oodshape.core.values import Checked
from oodshape.metrics.detection import Estimate
from oodshape.metrics.registry import DEFAULT_METRICS, Metric, check_metrics, flatten_metrics, gather_metrics
from oodshape.metrics.significance import LEVEL, Difference, MeanAuroc, find_tied_with_best, paired_bootstrap

FEWEST = 2  # images of a set: one has no variance
AVERAGE = "average"
ALL = ""  # in place of a name: the mean over all networks, or over all OOD sets


@dataclass(frozen=True, kw_only=True)
class Average(Checked):
    """A method's means over the OOD sets of a network, with their 95 % intervals."""

    model: str
    method: str
    metrics: dict[str, Estimate]

    def __post_init__(self) -> None:
        """Refuse impossible metrics."""
        super().__post_init__()
        check_metrics(self.metrics)

    def flat(self) -> dict[str, Any]:
        """The average as the columns of a flat file."""
        return {"model": self.model, "method": self.method} | flatten_metrics(self.metrics)

    @classmethod
    def of_flat(cls, columns: Mapping[str, Any]) -> Average:
        """The average of such columns."""
        metrics, rest = gather_metrics(columns)
        return cls(metrics=metrics, **rest)


@dataclass(frozen=True, kw_only=True)
class Ties(Checked):
    """The best method by AUROC on a network and an OOD set, and those that do not differ significantly from it.

    No difference: p >= 0.05 after correction over all pairs of methods. "" stands for the mean over all.
    """

    model: str
    ood: str
    best: str
    tied: tuple[str, ...]


def find_ties(scores: KeptScores) -> Iterator[Ties]:
    """Find the best method and those tied with it: per network and OOD set, per network, per OOD set and overall."""
    whole: dict[str, dict[str, MeanAuroc]] = {}  # OOD set -> method -> the mean over networks so far
    shared = _have_same_sets(scores)
    for place, model in enumerate(scores.by_model):
        for ood, means in _auroc_by_set(scores, model).items():
            yield _find_ties_among(model, ood, means)
            if shared:
                before = whole.get(ood, {})
                whole[ood] = {m: before[m].mixed(means[m], 1 / (place + 1)) for m in before} or means
    for ood, means in whole.items() if len(scores.by_model) > 1 else ():
        yield _find_ties_among(ALL, ood, means)


def compare_with_best(scores: KeptScores) -> Iterator[tuple[str, str, str, float, Difference, float]]:
    """(network, best, method, mean AUROC, method less best, corrected p-value) of every method, the best first."""
    for model in scores.by_model:
        means = _auroc_by_set(scores, model)[ALL]
        best, p_values = find_tied_with_best(means)
        for name in sorted(means, key=lambda name: -means[name].value):
            yield model, best, name, means[name].value, means[name].minus(means[best]), p_values.get(name, 1.0)


def _have_same_sets(scores: KeptScores) -> bool:
    """Whether all networks ran the same methods on the same images, so that means over networks compare."""
    models = [
        {method: {name: len(part) for name, part in sets.items()} for method, sets in methods.items()}
        for methods in scores.by_model.values()
    ]
    return all(model == models[0] for model in models)


def _auroc_by_set(scores: KeptScores, model: str) -> dict[str, dict[str, MeanAuroc]]:
    """OOD set -> method -> its AUROC, and under `ALL` the mean over the sets."""
    found: dict[str, dict[str, MeanAuroc]] = {}
    for method, (inside, sets) in scores.of(model).items():
        if min(len(inside), *map(len, sets.values())) < FEWEST:
            continue
        singles = {name: MeanAuroc.of((inside, {name: part})) for name, part in sets.items()}
        for name, mean in (*singles.items(), (ALL, MeanAuroc.over(list(singles.values())))):
            found.setdefault(name, {})[method] = mean
    return found


def _find_ties_among(model: str, ood: str, means: dict[str, MeanAuroc]) -> Ties:
    best, p_values = find_tied_with_best(means)
    return Ties(model=model, ood=ood, best=best, tied=tuple(m for m, p in p_values.items() if p >= 1 - LEVEL))


@dataclass(frozen=True)
class Comparison:
    """The first method less the second, on one network and OOD set (or the mean over the sets)."""

    model: str
    ood: str
    metric: Metric
    first: float
    second: float
    difference: Difference


def compare_pair(
    scores: KeptScores,
    first: str,
    second: str,
    metrics: Sequence[Metric] = DEFAULT_METRICS,
    *,
    resamples: int = 1000,
    kinds: Mapping[str, Container[str]] = MappingProxyType({}),
) -> Iterator[Comparison]:
    """Metrics on each OOD set and their means, also over kinds of sets, by their own test or a paired bootstrap."""
    for model in scores.by_model:
        methods = scores.of(model)
        for name in (first, second):
            if name not in methods:
                raise InputError(f"no scores of a method {name!r} were kept; there are {', '.join(methods)}")
        sets = methods[first][1]
        parts = {kind: [name for name in sets if name in members] for kind, members in kinds.items()}
        for ood, chosen in (*((ood, [ood]) for ood in sets), *parts.items(), (AVERAGE, list(sets))):
            pair = [
                (inside, {name: outside[name] for name in chosen})
                for inside, outside in (methods[first], methods[second])
            ]
            for metric in metrics:
                one, two = (fmean(metric(inside, part) for part in outside.values()) for inside, outside in pair)
                test = metric.paired or partial(paired_bootstrap, metric, resamples=resamples)
                yield Comparison(model, ood, metric, one, two, test(*pair))
