"""How well scores separate ID from OOD images: functions of (id_scores, ood_scores); a higher score means more ID.

Every metric reads integer counts: how many images each threshold accepts. A bootstrap resample changes only the counts,
so the code of the point value also computes many resamples at once. `registry` lists the metrics that are reported.
Scores are compared as float64, in which float16, bfloat16 and float32 values are exact.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError, check_fraction

Positive = Literal["id", "ood"]
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

CHUNK = 1 << 16  # counts per array while resampling: half a megabyte, so that a chunk stays in the processor's cache
MANY = 1000  # images of a side from which on its resamples need no unseen image
RISK = 20  # 1 / 20 = 5 %: the risk at which the joint coverage is read
POINTS = 60  # of a ROC curve at most


@dataclass(frozen=True)
class Estimate:
    """A metric's value and the limits of its confidence interval."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Outcome:
    """The outcome of a method on ID images and one OOD set: the images that each threshold accepts, and the cost.

    Counts are [..., thresholds], from the threshold that accepts nothing to the one that accepts everything.
    """

    id: Ints
    ood: Ints
    right: Ints | None = None  # accepted ID images whose class is predicted correctly; None without labels
    fit_seconds: float | None = None
    image_seconds: float | None = None  # to score one image

    @classmethod
    def of(cls, id_scores: Any, ood_scores: Any) -> Outcome:
        """The outcome of two sets of scores."""
        return count_outcome(*rank_scores(id_scores, ood_scores))


def auroc(id_scores: Any, ood_scores: Any) -> float:
    """Compute the area under the ROC curve: P(id > ood) + P(id = ood) / 2, from exact counts.

    Args:
        id_scores: Scores of ID images, higher = more in-distribution.
        ood_scores: Scores of OOD images.

    Returns:
        The AUROC in [0, 1].

    >>> auroc([3.0, 2.0], [2.0, 1.0])
    0.875
    """
    return float(area_under_roc(Outcome.of(id_scores, ood_scores)))


def fpr_at_tpr(id_scores: Any, ood_scores: Any, *, tpr: float = 0.95, positive: Positive = "id") -> float:
    """Compute the fraction of OOD scores >= t, for the largest t that the fraction `tpr` of ID scores reaches.

    Args:
        id_scores: Scores of ID images, higher = more in-distribution.
        ood_scores: Scores of OOD images.
        tpr: The true positive rate.
        positive: "ood" computes the other convention, on negated scores: the fraction of ID images with score <= t, for
            the smallest t that the fraction `tpr` of OOD images does not exceed.

    Returns:
        The false positive rate in [0, 1].

    Raises:
        InputError: If `tpr` is not in (0, 1] or `positive` is unknown.

    >>> fpr_at_tpr([4.0, 3.0, 2.0, 1.0], [2.5, 2.0, 0.0, 0.0], tpr=0.75)
    0.5
    """
    check_fraction("tpr", tpr, one=True)
    if positive not in get_args(Positive):
        raise InputError(f"positive must be 'id' or 'ood', got {positive!r}")
    outcome = Outcome.of(id_scores, ood_scores)
    return float(false_positive_rate(outcome if positive == "id" else swap_positive(outcome), tpr))


def aupr_in(id_scores: Any, ood_scores: Any) -> float:
    """Compute the area under the precision-recall curve, ID positive, by the trapezoid rule (not average precision).

    Args:
        id_scores: Scores of ID images, higher = more in-distribution.
        ood_scores: Scores of OOD images.

    Returns:
        The AUPR in [0, 1].

    >>> aupr_in([3.0, 2.0], [2.0, 1.0])  # (recall, precision): (0, 1), (1/2, 1), (1, 2/3), (1, 1/2)
    0.9166666666666666
    """
    return float(area_under_precision_recall(Outcome.of(id_scores, ood_scores)))


def aupr_out(id_scores: Any, ood_scores: Any) -> float:
    """Compute the area under the precision-recall curve of the negated scores, OOD positive, by the trapezoid rule.

    Args:
        id_scores: Scores of ID images, higher = more in-distribution.
        ood_scores: Scores of OOD images.

    Returns:
        The AUPR in [0, 1].

    >>> aupr_out([3.0, 2.0], [2.0, 1.0]) == aupr_in([-1.0, -2.0], [-2.0, -3.0])
    True
    """
    return float(area_under_precision_recall(swap_positive(Outcome.of(id_scores, ood_scores))))


def detection_error(id_scores: Any, ood_scores: Any) -> float:
    """Compute the smallest error of any threshold: min over t of P(id < t) / 2 + P(ood >= t) / 2.

    The threshold is the best one, not that of a fixed true positive rate (Liang et al., ODIN, ICLR 2018).

    Args:
        id_scores: Scores of ID images, higher = more in-distribution.
        ood_scores: Scores of OOD images.

    Returns:
        The error in [0, 0.5].

    >>> detection_error([4.0, 3.0, 2.0, 1.0], [2.5, 2.0, 0.0, 0.0])
    0.25
    """
    outcome = Outcome.of(id_scores, ood_scores)
    n_id, n_ood = int(outcome.id[-1]), int(outcome.ood[-1])
    return int(((n_id - outcome.id) * n_ood + outcome.ood * n_id).min()) / (2 * n_id * n_ood)


def bootstrap(
    metric: Callable[[Floats, Floats], float],
    id_scores: Any,
    ood_scores: Any,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Compute a metric with its percentile bootstrap interval.

    ID and OOD images are resampled separately, as `resample` describes. `registry.measure` makes the same draws,
    faster.

    Args:
        metric: A function metric(id_scores, ood_scores).
        id_scores: Scores of ID images.
        ood_scores: Scores of OOD images.
        level: Confidence level.
        resamples: Number of resamples.
        seed: Seed of the draws.

    Returns:
        The value and the limits of its interval.

    >>> bootstrap(detection_error, [4.0, 3.0, 2.0, 1.0], [2.5, 2.0, 0.0, 0.0], resamples=200)
    Estimate(value=0.25, low=0.0, high=0.5)
    """
    id_values, ood_values = as_scores(id_scores, "id_scores"), as_scores(ood_scores, "ood_scores")
    every = np.concatenate([id_values, ood_values])
    draws = resample(len(id_values), len(ood_values), resamples, seed)
    values = [metric(every[i], every[j]) for rows in draws for i, j in zip(*rows, strict=True)]
    return percentile_interval(metric(id_values, ood_values), np.array(values), level)


def rank_scores(id_scores: Any, ood_scores: Any) -> tuple[Ints, Ints, int]:
    """The ranks of ID and of OOD scores among all distinct values, the highest being 1; and their limit."""
    id_values, ood_values = as_scores(id_scores, "id_scores"), as_scores(ood_scores, "ood_scores")
    distinct, inverse = np.unique(-np.concatenate([id_values, ood_values]), return_inverse=True)
    return inverse[: len(id_values)] + 1, inverse[len(id_values) :] + 1, len(distinct) + 1


def count_outcome(
    id_ranks: Ints,
    ood_ranks: Ints,
    width: int,
    correct: NDArray[np.bool_] | None = None,
    fit_seconds: float | None = None,
    image_seconds: float | None = None,
) -> Outcome:
    """The outcome of [..., n] ranks; `correct` is [..., n_id]."""

    def accepted(ranks: Ints, chosen: NDArray[np.bool_] | None = None) -> Ints:
        rows = ranks.reshape(-1, ranks.shape[-1])
        cells = (rows + np.arange(len(rows))[:, None] * width).ravel()
        counts = np.bincount(cells if chosen is None else cells[chosen.ravel()], minlength=len(rows) * width)
        return counts.reshape(*ranks.shape[:-1], width).cumsum(axis=-1)

    right = None if correct is None else accepted(id_ranks, correct)
    return Outcome(accepted(id_ranks), accepted(ood_ranks), right, fit_seconds, image_seconds)


def swap_positive(outcome: Outcome) -> Outcome:
    """The outcome of the negated scores with OOD as the positive class."""
    id, ood = (counts[..., -1:] - counts[..., ::-1] for counts in (outcome.ood, outcome.id))
    return Outcome(id, ood)


def area_under_roc(outcome: Outcome) -> Floats:
    """[...]: the AUROC."""
    tp, fp = outcome.id, outcome.ood
    twice = np.einsum("...i,...i->...", np.diff(fp), tp[..., 1:] + tp[..., :-1])  # 2 wins + ties
    return np.asarray(twice / (2 * tp[..., -1] * fp[..., -1]))


def false_positive_rate(outcome: Outcome, tpr: float = 0.95) -> Floats:
    """[...]: the fraction of OOD images accepted by the strictest threshold that accepts the fraction tpr of ID."""
    tp, fp = outcome.id, outcome.ood
    first = np.argmax(tp >= _count_kept(tpr, int(tp.flat[-1])), axis=-1, keepdims=True)
    return np.asarray(np.take_along_axis(fp, first, axis=-1)[..., 0] / fp[..., -1])


def area_under_precision_recall(outcome: Outcome) -> Floats:
    """[...]: the AUPR with ID as the positive class."""
    tp, accepted = outcome.id, outcome.id + outcome.ood
    precision = np.where(accepted == 0, 1.0, tp / np.maximum(accepted, 1))  # the curve starts at (0, 1)
    twice = np.einsum("...i,...i->...", np.diff(tp), precision[..., 1:] + precision[..., :-1])
    return np.asarray(twice / (2 * tp[..., -1]))


def roc_points(id_scores: Any, ood_scores: Any) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """At most `POINTS` points of the ROC curve (FPR, TPR), even along it, both ends among them.

    >>> roc_points([3.0, 2.0, 2.0], [1.0, 2.0])
    ((0.0, 0.0, 0.5, 1.0), (0.0, 0.33333, 1.0, 1.0))
    """
    outcome = Outcome.of(id_scores, ood_scores)
    rates = np.stack([outcome.ood / outcome.ood[-1], outcome.id / outcome.id[-1]])
    along = rates.sum(axis=0)  # 0..2, ascending
    kept = np.unique(np.searchsorted(along, np.linspace(0, 2, POINTS) - 1e-9))
    fpr, tpr = rates[:, kept].round(5).tolist()
    return tuple(fpr), tuple(tpr)


def joint_aurc(outcome: Outcome) -> Floats | None:
    """[...]: the area under the joint risk-coverage curve; None without labels.

    All ID images together weigh as much as all OOD images. Coverage is the weight of the accepted images, risk the
    fraction of this weight that is wrong: ID images of a wrong class, and every OOD image. Images of equal score are
    accepted in parts: between two thresholds, errors grow linearly with coverage. The integral is exact, so it does not
    change when every image is counted twice, as a sum over images would; resamples count many images twice.
    """
    if outcome.right is None:
        return None
    accepted, wrong = _weigh(outcome, outcome.right)
    slope = np.diff(wrong) / np.maximum(np.diff(accepted), 1)
    rest = wrong[..., :-1] - slope * accepted[..., :-1]  # risk(c) = slope + rest / c between two thresholds
    curved = np.einsum("...i,...i->...", rest, np.diff(np.log(np.maximum(accepted, 1))))
    return np.asarray((wrong[..., -1] + curved) / accepted[..., -1])


def joint_coverage(outcome: Outcome) -> Floats | None:
    """[...]: the largest coverage of a threshold whose joint risk is at most 5 %, else 0; None without labels."""
    if outcome.right is None:
        return None
    accepted, wrong = _weigh(outcome, outcome.right)
    return np.asarray(np.where(RISK * wrong <= accepted, accepted, 0).max(axis=-1) / accepted[..., -1])


def _weigh(outcome: Outcome, right: Ints) -> tuple[Ints, Ints]:
    """The weights of accepted and of wrongly accepted images, in exact integers: an ID image weighs n_ood, an OOD
    image n_id."""
    n_id, n_ood = outcome.id[..., -1:], outcome.ood[..., -1:]
    ood = outcome.ood * n_id
    return outcome.id * n_ood + ood, (outcome.id - right) * n_ood + ood


def _count_kept(tpr: float, n: int) -> int:
    """The smallest number of n images that is a share tpr of them.

    >>> _count_kept(0.55, 100), _count_kept(0.95, 10)
    (55, 10)
    """
    # a quotient is rounded as its literal is, so 55 / 100 >= 0.55 holds; the product 0.55 * 100 exceeds 55
    return bisect_left(range(n + 1), tpr, key=lambda m: m / n)


def percentile_interval(value: float, values: Floats, level: float) -> Estimate:
    """The value with the percentile interval of its resamples, which never leaves the value out."""
    check_fraction("level", level)
    low, high = np.quantile(values, [(1 - level) / 2, (1 + level) / 2]).tolist()
    return Estimate(float(value), min(low, float(value)), max(high, float(value)))


def resample(n_id: int, n_ood: int, resamples: int, seed: int, ood: int = 0) -> Iterator[tuple[Ints, Ints]]:
    """Chunks of [B, ID images] and [B, OOD images]: indices of all images, ID first.

    Resamples of a few images say too little about images that were not seen: with one OOD image, or none accepted, an
    interval of them alone would be a point. So a side with fewer than `MANY` images has one more, unseen image, which
    each resample gives the score of any image of both sides, as one image's worth of a prior.

    `ood` is the number of the OOD set: all sets share the draws of the ID images. Each kind of draw has a stream of its
    own, so the chunk size changes none.
    """
    if resamples < 1:
        raise InputError(f"resamples must be at least 1, got {resamples}; a metric alone needs no interval")
    id_stream, *_, ood_stream = np.random.default_rng(seed).spawn(2 + ood)
    unseen = {stream: stream.spawn(1)[0] for stream in (id_stream, ood_stream)}
    rows = max(1, CHUNK // (n_id + n_ood))

    def side(stream: np.random.Generator, n: int, first: int, size: int) -> Ints:
        if n >= MANY:
            return stream.integers(n, size=(size, n)) + first
        drawn = stream.integers(n + 1, size=(size, n + 1))
        return np.where(drawn < n, drawn + first, unseen[stream].integers(n_id + n_ood, size=(size, 1)))

    for start in range(0, resamples, rows):
        size = min(rows, resamples - start)
        yield side(id_stream, n_id, 0, size), side(ood_stream, n_ood, n_id, size)


def as_scores(values: Any, name: str) -> Floats:
    """A non-empty 1-D float64 array without NaN; infinite scores have their place in the order."""
    if hasattr(values, "detach"):  # a tensor; numpy has no bfloat16
        values = values.detach().cpu().double()
    try:
        array = np.asarray(values)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} needs one number per image: {error}") from None
    if array.dtype.kind not in "fiub" or array.ndim != 1 or array.size == 0:
        raise InputError(f"{name} needs one number per image, got {array.dtype} of shape {list(array.shape)}")
    bad = np.flatnonzero(np.isnan(array))
    if bad.size:
        raise InputError(f"{name}[{bad[0]}] is NaN ({bad.size} of {array.size} are); a NaN score has no rank")
    return array.astype(np.float64)
