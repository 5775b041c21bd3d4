"""Split conformal thresholds and p-values, from the scores of held-out ID images in ascending order."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError, check_fraction
from oodshape.metrics.beta import beta_quantile
from oodshape.metrics.detection import as_scores

if TYPE_CHECKING:  # a service counts without it
    from torch import Tensor

Scores = NDArray[np.float32]


def threshold_rank(n: int, alpha: float) -> int:
    """floor(alpha (n + 1)): the place of the threshold among n ascending scores, counted from 1; 0 for too few.

    >>> threshold_rank(99, 0.29)  # exact: 0.29 * 100 is 28.999... in floats
    29
    """
    return int(Fraction(str(alpha)) * (n + 1))


def images_needed(alpha: float) -> int:
    """The fewest held-out images from which a threshold for alpha can be set.

    >>> images_needed(0.05)
    19
    """
    check_fraction("alpha", alpha)
    share = Fraction(str(alpha))
    return int(-(-(1 - share) // share))


def check_enough(n: int, alpha: float) -> None:
    """Refuse fewer held-out images than alpha needs."""
    if n < images_needed(alpha):
        raise InputError(
            f"alpha = {alpha:g} needs at least {images_needed(alpha)} held-out images, got {n}; "
            "give more images or a larger alpha"
        )


def threshold(ascending: Scores, alpha: float) -> float:
    """The smallest accepted score: at most a share alpha of ID images falls below it (split conformal)."""
    return float(ascending[threshold_rank(len(ascending), alpha) - 1])


def p_values(ascending: Scores, scores: Tensor) -> Tensor:
    """[N] float64: the share of held-out ID images with a score as low, (1 + #{<= score}) / (n + 1)."""
    import torch

    held_out = torch.tensor(ascending)
    below = torch.searchsorted(held_out, scores.detach().cpu().float().contiguous(), right=True)
    return (1.0 + below.double()) / (len(held_out) + 1)


MOST_CLASSES = 10_000_000  # each may have a threshold in memory, and a file of a few bytes may ask for any number
POOL = -1  # stands for all classes without a threshold of their own


def group_by_class(ascending: Scores, groups: NDArray[Any] | None, alpha: float) -> dict[int, Scores]:
    """The ascending calibration scores that images of a predicted class are compared with; `POOL`: all other classes.

    A class with enough images has its own. The others share those of all classes with too few, and of the smallest
    other class if these are too few together. Which of these holds for a new image is decided as if it were one of the
    calibration images: only then is it exchangeable with them, and the rejection rate at most alpha for any n.
    Without groups, all classes share all scores.
    """
    if groups is None:
        return {POOL: ascending}
    needed = images_needed(alpha)
    found, counts = np.unique(groups, return_counts=True)
    sizes = sorted(zip(counts.tolist(), found.tolist(), strict=True))
    few, large = [each for each in sizes if each[0] <= needed], [each for each in sizes if each[0] > needed]
    pooled, rare = sum(count for count, _ in few), [label for _, label in few]
    members = {POOL: rare + [label for _, label in large[:1] if pooled < needed]}
    for count, label in sizes:
        if count >= needed:
            rest = pooled - (count if count == needed else 0)
            smallest = all((count + 1, label) < other for other in large[:2] if other[1] != label)
            if not (0 < rest <= needed and smallest):
                members[label] = [label]
            elif label not in members[POOL]:
                members[label] = [*rare, label]
    return {label: ascending[np.isin(groups, each)] for label, each in members.items()}


def class_limits(ascending: Scores, alpha: float, groups: NDArray[Any] | None, classes: int) -> Scores:
    """Return the smallest accepted score for each predicted class, [C]; without groups for all of them, [1]."""
    if groups is None:
        return np.array([threshold(ascending, alpha)], np.float32)
    own = group_by_class(ascending, groups, alpha)
    values = np.full(classes, threshold(own.pop(POOL), alpha), np.float32)
    for label, scores in own.items():
        values[label] = threshold(scores, alpha)
    return values


def rejection_rate_limits(n: int, alpha: float) -> tuple[float, float]:
    """The limits between which the true share of rejected ID images lies, for 99 % of calibration sets.

    Given the n held-out images it follows Beta(k, n + 1 - k), where k is the rank of the threshold.
    """
    k = threshold_rank(n, alpha)
    return beta_quantile((1 - LEVEL) / 2, k, n + 1 - k), beta_quantile((1 + LEVEL) / 2, k, n + 1 - k)


def rejected_count_limits(n: int, alpha: float, images: int) -> tuple[int, int]:
    """The limits of the number of rejected among fresh ID images: beta-binomial, exact where scores have no ties."""
    from scipy.stats import betabinom

    k = threshold_rank(n, alpha)
    law = betabinom(images, k, n + 1 - k)
    return int(law.ppf((1 - LEVEL) / 2)), int(law.ppf((1 + LEVEL) / 2))


def allowed_rate(level: float, n: int, delta: float) -> float:
    """The rate that a threshold for `level` from n calibration scores exceeds with probability delta only.

    >>> round(allowed_rate(0.05, 99, 0.5), 3), round(allowed_rate(0.05, 99, 0.01), 3)
    (0.047, 0.113)
    """
    k = threshold_rank(n, level)
    return beta_quantile(1 - delta, k, n + 1 - k)


LEVEL = 0.99  # of the limits of the true rate
LAMBDA = 0.5  # p-values above it are taken for those of familiar images
ROUNDING = 5e-6  # of a product or quotient that would be a whole number: p-values in text files have six digits


def false_discoveries(p_values: Any, level: float = 0.1, *, storey: bool = False) -> NDArray[np.bool_]:
    """Select images to flag, with the expected fraction of ID images among them at most `level` (Benjamini-Hochberg).

    Args:
        p_values: P-values of a finished set of images, all of them.
        level: Bound on the false discovery rate.
        storey: Estimate the number of ID images from the p-values above 1/2; flags more if many images are OOD.

    Returns:
        [m] bool: the images to flag.

    Raises:
        InputError: If the level or a p-value is not in its range.

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
