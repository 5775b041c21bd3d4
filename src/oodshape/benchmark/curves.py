"""ROC curves small enough to keep with results."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.values import Checked

POINTS = 60  # of a ROC curve at most


@dataclass(frozen=True, kw_only=True)
class ScoreCurve(Checked):
    """The ROC curve of one row in a few points."""

    model: str
    method: str
    ood: str
    fpr: tuple[float, ...]  # ascending from 0 to 1
    tpr: tuple[float, ...]

    def __post_init__(self) -> None:
        """Refuse what no scores give."""
        super().__post_init__()
        if len(self.fpr) != len(self.tpr):
            raise InputError(f"the curve of {self.method} on {self.model} and {self.ood} does not fit together")

    @classmethod
    def of(cls, model: str, method: str, ood: str, id_scores: Any, ood_scores: Any) -> ScoreCurve:
        """The curve of two sets of scores, higher = more in-distribution.

        >>> curve = ScoreCurve.of("net", "msp", "noise", [3.0, 2.0, 2.0], [1.0, 2.0])
        >>> curve.fpr, curve.tpr
        ((0.0, 0.0, 0.5, 1.0), (0.0, 0.33333, 1.0, 1.0))
        """
        from oodshape.metrics.detection import as_scores

        fpr, tpr = compute_roc_points(as_scores(id_scores, "id_scores"), as_scores(ood_scores, "ood_scores"))
        return cls(model=model, method=method, ood=ood, fpr=fpr, tpr=tpr)


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
