"""What gets accepted should be right: error among the accepted images, and whether two verdicts differ by chance."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.metrics.separation import as_scores

Floats = NDArray[np.float64]


def risk_coverage(scores: Any, correct: Any) -> tuple[Floats, Floats]:
    """([n], [n]): coverage k / n, and the share of errors among the k images with the highest scores.

    Images of equal score have no order: each is counted with the share of errors among them.

    >>> [part.tolist() for part in risk_coverage([3.0, 1.0, 2.0, 2.0], [True, False, True, False])]
    [[0.25, 0.5, 0.75, 1.0], [0.0, 0.25, 0.3333333333333333, 0.5]]
    """
    values, right = as_scores(scores, "scores"), np.asarray(correct)
    if right.shape != values.shape or right.dtype != bool:
        raise InputError(f"correct must be {len(values)} truth values, one per image, got {right.dtype}{right.shape}")
    _, place, counts = np.unique(-values, return_inverse=True, return_counts=True)
    wrong = np.bincount(place, weights=~right) / counts
    errors = np.cumsum(np.repeat(wrong, counts))
    kept = np.arange(1, len(values) + 1)
    return kept / len(values), errors / kept


def aurc(scores: Any, correct: Any) -> float:
    """The area under the risk-coverage curve (Geifman & El-Yaniv, 2017): the mean risk over all coverages; low is good.

    >>> round(aurc([4.0, 3.0, 2.0, 1.0], [True, True, True, False]), 4), round(aurc([1.0, 1.0], [True, False]), 4)
    (0.0625, 0.5)
    """
    return float(risk_coverage(scores, correct)[1].mean())


def mcnemar(one: Any, other: Any) -> float:
    """The p-value of "both accept as many" on the same images: exact, by those that only one of them accepts.

    >>> mcnemar([True] * 5, [False] * 5)  # 5 of 5 differ one way: 2 / 2 ** 5
    0.0625
    """
    first, second = np.asarray(one, bool), np.asarray(other, bool)
    if first.shape != second.shape:
        raise InputError(f"both must judge the same images, got {len(first)} and {len(second)}")
    only, others = int((first & ~second).sum()), int((second & ~first).sum())
    if only == others:
        return 1.0
    from scipy.stats import binomtest

    return float(binomtest(only, only + others).pvalue)
