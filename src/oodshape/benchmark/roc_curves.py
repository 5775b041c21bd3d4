"""Curves small enough to keep with results: histograms of scores, ROC points."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.values import check_fields

BINS, POINTS = 40, 60  # of a histogram, and of a ROC curve at most


@dataclass(frozen=True, kw_only=True)
class Curve:
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
    def of(cls, model: str, method: str, ood: str, id_scores: Any, ood_scores: Any) -> Curve:
        """The curve of two sets of scores, higher = more in-distribution.

        >>> curve = Curve.of("net", "msp", "noise", [3.0, 2.0, 2.0], [1.0, 2.0])
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
        fpr, tpr = roc_points(inside, outside)
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


def roc_points(inside: Any, outside: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """At most `POINTS` points of the ROC curve (FPR, TPR), even along it, both ends among them."""
    thresholds = np.unique(np.concatenate([inside, outside]))[::-1]
    rates = np.zeros((2, len(thresholds) + 1))
    for rate, scores in zip(rates, (outside, inside), strict=True):
        rate[1:] = 1 - np.searchsorted(np.sort(scores), thresholds) / len(scores)
    along = rates.sum(axis=0)  # 0..2, ascending
    kept = np.unique(np.searchsorted(along, np.linspace(0, 2, POINTS) - 1e-9))
    fpr, tpr = rates[:, kept].round(5).tolist()
    return tuple(fpr), tuple(tpr)
