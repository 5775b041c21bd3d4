"""Variants of OptFS tested on all OOD sets: theta from OOD data, other objectives, intervals and limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oodshape.features.features import Features
from oodshape.methods.detector import Method
from oodshape.methods.registry import METHODS
from oodshape.studies.methods import measure, optfs_of
from oodshape.studies.theta import OBJECTIVES, Objective, dynamic, with_ood

if TYPE_CHECKING:
    from pandas import DataFrame

NUMBERS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
TAILS = (0.0, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1)  # the paper's eight percentile pairs


def variants(
    train: Features,
    inside: Features,
    ood: Mapping[str, Features],
    sources: Mapping[str, Features],
    methods: Mapping[str, Method] = METHODS,
    *,
    objective: Objective = "mean-gap",
    seed: int = 0,
) -> DataFrame:
    """variant, ood, fpr95, auroc: theta with each source of OOD data, with dynamic classes, and from ID data alone.

    `objective` is what theta makes small with the OOD data (`with_ood`). Each theta is tested on every OOD set with
    the V score; the last variant is the E score of the ID-only theta.
    """
    from pandas import DataFrame

    vanilla, energy = methods["optfs-v"].fit(train), methods["optfs-e"].fit(train)
    optfs = optfs_of(methods)
    detectors = {
        name: replace(vanilla, shape=with_ood(train, source, objective=objective, optfs=optfs, seed=seed))
        for name, source in sources.items()
    }
    detectors["dynamic"] = replace(vanilla, shape=dynamic(train, optfs=optfs, seed=seed))
    detectors |= {"ours (V)": vanilla, "ours (E)": energy}
    rows: list[dict[str, Any]] = []
    for name, detector in detectors.items():
        rows += measure(detector, inside, ood, variant=name)
    return DataFrame(rows)


def objectives(
    train: Features, inside: Features, ood: Mapping[str, Features], sources: Mapping[str, Features]
) -> DataFrame:
    """source, objective, ood, fpr95, auroc: theta by each objective from each source of OOD data, tested on all."""
    from pandas import DataFrame

    vanilla = METHODS["optfs-v"].fit(train)
    rows: list[dict[str, Any]] = []
    for name, source in sources.items():
        for objective in OBJECTIVES:
            detector = replace(vanilla, shape=with_ood(train, source, objective=objective))
            rows += measure(detector, inside, ood, source=name, objective=objective)
    return DataFrame(rows)


def k_sweep(
    train: Features,
    inside: Features,
    ood: Mapping[str, Features],
    numbers: Sequence[int] = NUMBERS,
    methods: Mapping[str, Method] = METHODS,
) -> DataFrame:
    """k, method (optfs-v, optfs-e), ood, fpr95, auroc for each number of intervals; k = 0 is Energy for both."""
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    for k in numbers:
        for name in ("optfs-v", "optfs-e"):
            method = replace(methods[name], shape=replace(optfs_of(methods), k=k)) if k else methods["energy"]
            rows += measure(method.fit(train), inside, ood, k=k, method=name)
    return DataFrame(rows)


def limits_sweep(
    train: Features,
    inside: Features,
    ood: Mapping[str, Features],
    tails: Sequence[float] = TAILS,
    methods: Mapping[str, Method] = METHODS,
) -> DataFrame:
    """tail, lower, upper (the limits as feature values), method, ood, fpr95, auroc; tail = 0 is the whole range."""
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    for tail in tails:
        for name in ("optfs-v", "optfs-e"):
            detector = replace(methods[name], shape=replace(optfs_of(methods), tail=tail)).fit(train)
            lower, upper = train.stats.quantile(tail), train.stats.quantile(1 - tail)
            rows += measure(detector, inside, ood, tail=tail, lower=lower, upper=upper, method=name)
    return DataFrame(rows)
