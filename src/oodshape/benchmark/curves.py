"""Curves small enough to keep with results: histograms of scores, ROC points, sampled shaping functions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.values import check_fields

if TYPE_CHECKING:
    from oodshape.methods.base import Shape

BINS, POINTS = 40, 60  # of a histogram, and of a ROC curve at most


@dataclass(frozen=True, kw_only=True)
class ScoreCurve:
    """The scores of one row in small: a histogram with bins that ID and OOD share, and points of the ROC curve.

    Scores beyond `low` and `high` (the outer 0.5 % of ID and of OOD) count in the first and the last bin.
    """

    model: str
    method: str
    ood: str
    low: float
    high: float
    id_counts: tuple[int, ...]
    ood_counts: tuple[int, ...]
    fpr: tuple[float, ...]  # ascending from 0 to 1
    tpr: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what no scores give."""
        check_fields(self)
        if not self.low < self.high or len(self.id_counts) != len(self.ood_counts) or len(self.fpr) != len(self.tpr):
            raise InputError(f"the curve of {self.method} on {self.model} and {self.ood} does not fit together")

    @classmethod
    def of(cls, model: str, method: str, ood: str, id_scores: Any, ood_scores: Any) -> ScoreCurve:
        """The curve of two sets of scores, higher = more in-distribution.

        >>> curve = ScoreCurve.of("net", "msp", "noise", [3.0, 2.0, 2.0], [1.0, 2.0])
        >>> sum(curve.id_counts), sum(curve.ood_counts), curve.fpr, curve.tpr
        (3, 2, (0.0, 0.0, 0.5, 1.0), (0.0, 0.33333, 1.0, 1.0))
        """
        from oodshape.metrics.detection import as_scores

        inside, outside = as_scores(id_scores, "id_scores"), as_scores(ood_scores, "ood_scores")
        finite = [part for part in (inside[np.isfinite(inside)], outside[np.isfinite(outside)]) if len(part)]
        low = min((float(np.quantile(part, 0.005)) for part in finite), default=0.0)
        high = max((float(np.quantile(part, 0.995)) for part in finite), default=0.0)
        if low == high:
            low, high = low - 0.5, high + 0.5
        counts = [np.histogram(part.clip(low, high), bins=BINS, range=(low, high))[0] for part in (inside, outside)]
        fpr, tpr = compute_roc_points(inside, outside)
        return cls(
            model=model,
            method=method,
            ood=ood,
            low=low,
            high=high,
            id_counts=tuple(counts[0].tolist()),
            ood_counts=tuple(counts[1].tolist()),
            fpr=fpr,
            tpr=tpr,
        )


def compute_roc_points(inside: Any, outside: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """At most `POINTS` points of the ROC curve (FPR, TPR), even along it, both ends among them."""
    thresholds = np.unique(np.concatenate([inside, outside]))[::-1]
    rates = np.zeros((2, len(thresholds) + 1))
    for rate, scores in zip(rates, (outside, inside), strict=True):
        rate[1:] = 1 - np.searchsorted(np.sort(scores), thresholds) / len(scores)
    along = rates.sum(axis=0)  # 0..2, ascending
    kept = np.unique(np.searchsorted(along, np.linspace(0, 2, POINTS) - 1e-9))
    fpr, tpr = rates[:, kept].round(5).tolist()
    return tuple(fpr), tuple(tpr)


@dataclass(frozen=True, kw_only=True)
class ThetaCurve:
    """Points (z, theta(z)) of the shaping function that a method fitted on a model."""

    model: str
    method: str
    z: tuple[float, ...]
    theta: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse points without a value."""
        check_fields(self)
        if len(self.z) != len(self.theta):
            raise InputError(f"{len(self.z)} points and {len(self.theta)} values of theta")

    @property
    def is_identity(self) -> bool:
        """Whether features are left as they are."""
        return set(self.theta) <= {1.0}

    @classmethod
    def of(cls, model: str, method: str, shape: Shape, low: float, high: float, points: int = 200) -> ThetaCurve | None:
        """The points between two feature values, or None where the shape is no function of one value (ASH).

        z = 0 is left out: f(0) = 0 says nothing about theta there.

        >>> from oodshape.methods.shapes.clipping import Clip
        >>> ThetaCurve.of("net", "react", Clip(t=1.0), 0.0, 4.0, points=5).theta
        (1.0, 0.5, 0.333333, 0.25)
        """
        import torch

        if not shape.pointwise:
            return None
        z = torch.linspace(low, high, points)
        z = z[z != 0]
        row, column = z[None, :], z[:, None]
        theta = shape.scale(row, torch.ones_like(row))[0]
        if not torch.equal(theta, shape.scale(column, torch.ones_like(column))[:, 0]):
            return None
        return cls(model=model, method=method, z=_short(z.tolist()), theta=_short(theta.tolist()))


def _short(values: list[float]) -> tuple[float, ...]:
    return tuple(float(f"{value:.6g}") for value in values)
