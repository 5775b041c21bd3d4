"""The validation table: one theta per OOD set, tested on that set; and the picture behind it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from oodshape.features.features import Features
from oodshape.methods.registry import METHODS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.metrics.detection import auroc
from oodshape.studies.theta import with_ood

if TYPE_CHECKING:
    from pandas import DataFrame


def validation(train: Features, inside: Features, ood: Mapping[str, Features]) -> DataFrame:
    """ood, norm_ratio |b|/|a|, cosine cos(a, b), auroc_with, auroc_without: may the OOD term be left out?

    a and b are the mean impacts of the training set and of the OOD set; auroc_with is that of theta ~ a - b on
    this very OOD set, auroc_without that of theta ~ a; both with the V score.
    """
    from pandas import DataFrame

    vanilla = METHODS["optfs-v"].fit(train)
    assert isinstance(vanilla.shape, PiecewiseConstant)
    a, scores = train.stats.impact(vanilla.shape.edges), vanilla.score(inside)
    rows = []
    for name, outside in ood.items():
        b = outside.stats.impact(vanilla.shape.edges)
        real = replace(vanilla, shape=with_ood(train, outside))
        rows.append(
            {
                "ood": name,
                "norm_ratio": float(np.linalg.norm(b) / np.linalg.norm(a)),
                "cosine": float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b))),
                "auroc_with": auroc(real.score(inside), real.score(outside)),
                "auroc_without": auroc(scores, vanilla.score(outside)),
            }
        )
    return DataFrame(rows)


def intuition(table: DataFrame) -> DataFrame:
    """ood, x, y, degrees, orthogonal: b drawn in the plane where a is (1, 0), from the validation table.

    orthogonal is the length of b across a, the part of b that changes the direction of theta ~ a - b.
    """
    from pandas import DataFrame

    cosine, ratio = table["cosine"].clip(-1, 1), table["norm_ratio"]
    sine = np.sqrt(1 - cosine**2)
    angle = np.degrees(np.arccos(cosine)).round(9)
    parts = {"ood": table["ood"], "x": ratio * cosine, "y": ratio * sine, "degrees": angle, "orthogonal": ratio * sine}
    return DataFrame(parts).assign(turned=[_turn(x, y) for x, y in zip(parts["x"], parts["y"], strict=True)])


def _turn(x: float, y: float) -> float:
    """The angle in degrees between a and a - b."""
    return math.degrees(math.atan2(y, 1 - x))
