"""The variants table: one theta from one OOD set, tested on all OOD sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oodshape.features.features import Features
from oodshape.methods.detector import Method
from oodshape.methods.table import METHODS
from oodshape.studies.comparison import measured, optfs_of
from oodshape.studies.dynamic_classes import dynamic
from oodshape.studies.with_ood import OBJECTIVES, Objective, with_ood

if TYPE_CHECKING:
    from pandas import DataFrame


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
        rows += measured(detector, inside, ood, variant=name)
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
            rows += measured(detector, inside, ood, source=name, objective=objective)
    return DataFrame(rows)
