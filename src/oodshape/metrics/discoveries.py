"""Deciding about many images at once: which p-values are small enough that few of those flagged are familiar.

A threshold alpha bounds the share of *familiar* images that are flagged. Here the share of *flagged* images that are
familiar is bounded on average, the false discovery rate: Benjamini & Hochberg (1995), which holds for conformal
p-values that share one calibration set, with Storey's estimate of the familiar share too (Bates et al., 2023).
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError, check_fraction
from oodshape.metrics.separation import as_scores

LAMBDA = 0.5  # p-values above it are taken for those of familiar images
ROUNDING = 1e-9  # of a product or quotient that would be a whole number: no decision hangs on a last bit


def false_discoveries(p_values: Any, level: float = 0.1, *, storey: bool = False) -> NDArray[np.bool_]:
    """[m] bool: the images to flag, of which at most the share `level` is familiar on average.

    `p_values` are those of a guard for a finished set of images: all of them, flagged or not. `storey` estimates how
    many of the images are familiar from the p-values above 1/2, and flags more where many are strange.

    >>> false_discoveries([0.01, 0.02, 0.03, 0.8, 0.9], level=0.1).tolist()
    [True, True, True, False, False]
    """
    check_fraction("level", level)
    values = as_scores(p_values, "p_values")
    if values.min() <= 0 or values.max() > 1:
        raise InputError(f"p-values lie in (0, 1], got {values.min():g} to {values.max():g}")
    m = len(values)
    familiar = (1 + int((values > LAMBDA).sum())) / (1 - LAMBDA) if storey else m
    order = np.sort(values)
    kept = np.flatnonzero(order * familiar <= level * np.arange(1, m + 1) * (1 + ROUNDING))
    limit = order[kept[-1]] if len(kept) else -1.0
    return np.asarray(values <= limit)


def fewest_flagged(m: int, level: float, n_calibration: float) -> int:
    """How many of m images must be flagged together, if any is: no p-value is below 1 / (n + 1).

    >>> fewest_flagged(1000, 0.1, 499)
    20
    """
    check_fraction("level", level)
    exact = m / (level * (n_calibration + 1))
    return max(1, math.ceil(exact * (1 - ROUNDING)))
