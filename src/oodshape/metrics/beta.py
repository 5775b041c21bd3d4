"""Quantiles of the beta distribution in plain Python: importing scipy takes longer than the commands that need them."""

from __future__ import annotations

import math
from collections.abc import Callable

_TINY = 1e-300  # in place of 0 in a denominator
_MOST_TERMS = 10_000  # of the continued fraction, which needs about the square root of a + b


def beta_quantile(q: float, a: float, b: float) -> float:
    """Return the value that a Beta(a, b) variable stays below with probability q.

    >>> round(beta_quantile(0.5, 2, 2), 12), round(beta_quantile(0.99, 1, 1), 12)
    (0.5, 0.99)
    """
    return bisect(lambda x: _beta_cdf(x, a, b) - q, 0.0, 1.0)


def bisect(function: Callable[[float], float], low: float, high: float) -> float:
    """Return where a monotone function with different signs at both ends crosses 0, to the last bits."""
    rises = function(high) > 0
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if (function(middle) > 0) == rises else (middle, high)
    return (low + high) / 2


def log_beta(a: float, b: float) -> float:
    """Return the log of the beta function."""
    return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)


def _beta_cdf(x: float, a: float, b: float) -> float:
    """Return the regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if not 0 < x < 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other tail converges faster
        return 1 - _beta_cdf(1 - x, b, a)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d, c = 1 / (1 + term * d or _TINY), 1 + term / c or _TINY
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(a * math.log(x) + b * math.log1p(-x) - log_beta(a, b)) * fraction / a
