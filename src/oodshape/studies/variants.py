"""The variants table: one theta from one OOD set, tested on all OOD sets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from oodshape.features.features import Features
from oodshape.methods.table import METHODS
from oodshape.studies.comparison import measured
from oodshape.studies.dynamic_classes import dynamic
from oodshape.studies.with_ood import OBJECTIVES, with_ood

if TYPE_CHECKING:
    from pandas import DataFrame


def variants(
    train: Features,
    inside: Features,
    ood: Mapping[str, Features],
    sources: Mapping[str, Features],
    *,
    seed: int = 0,
) -> DataFrame:
    """variant, ood, fpr95, auroc: theta with each source of OOD data, with dynamic classes, and from ID data alone.

    Each theta is tested on every OOD set with the V score; the last variant is the E score of the ID-only theta.
    """
    from pandas import DataFrame

    vanilla, energy = METHODS["optfs-v"].fit(train), METHODS["optfs-e"].fit(train)
    detectors = {name: replace(vanilla, shape=with_ood(train, source)) for name, source in sources.items()}
    detectors["dynamic"] = replace(vanilla, shape=dynamic(train, seed=seed))
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
