"""Is a difference real? Two methods on the same images: DeLong for AUROC, a paired bootstrap for the rest.

Images that both methods scored are resampled together, so what makes an image hard for both cancels out. ID images
that several OOD sets share are drawn once for all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.metrics.detection import as_scores, auroc

Floats = NDArray[np.float64]
Metric = Callable[[Floats, Floats], float]
LEVEL = 0.95  # of confidence intervals
Scores = tuple[Any, Mapping[str, Any]]  # of the ID images, and of the images of each OOD set


@dataclass(frozen=True)
class Difference:
    """How much higher a metric is for the first method, its confidence interval, and the p-value of no difference."""

    value: float
    low: float
    high: float
    p_value: float


def delong(first: Scores, second: Scores) -> Difference:
    """The difference of two mean AUROCs over OOD sets (DeLong et al., 1988, by mid-ranks: Sun & Xu, 2014).

    `first` and `second` are (id_scores, {set: ood_scores}) of two methods, image by image in the same order.

    >>> same = ([3.0, 2.0, 4.0], {"textures": [1.0, 2.5]})
    >>> delong(same, same).p_value
    1.0
    """
    return MeanAuroc.of(first).minus(MeanAuroc.of(second))


def paired_bootstrap(
    metric: Metric, first: Scores, second: Scores, *, resamples: int = 1000, seed: int = 0
) -> Difference:
    """The difference of a metric's mean over OOD sets between two methods on the same images.

    `first` and `second` are (id_scores, {set: ood_scores}). The interval is the percentile one; the p-value is twice
    the smaller share of resamples on either side of 0, counted with the observed one, so that it is never 0.

    >>> same = ([3.0, 2.0, 4.0], {"textures": [1.0, 2.5]})
    >>> paired_bootstrap(auroc, same, same, resamples=20)
    Difference(value=0.0, low=0.0, high=0.0, p_value=1.0)
    """
    if resamples < 1:
        raise InputError(f"resamples must be at least 1, got {resamples}")
    (id_a, sets_a), (id_b, sets_b) = _sets(first), _sets(second)
    sizes = {name: len(scores) for name, scores in sets_a.items()}
    if len(id_a) != len(id_b) or sizes != {name: len(scores) for name, scores in sets_b.items()}:
        raise InputError("both methods must score the same ID images and the same OOD sets, image by image")

    def difference(rows: Any, picked: Mapping[str, Any]) -> float:
        each = [metric(id_a[rows], a[picked[n]]) - metric(id_b[rows], sets_b[n][picked[n]]) for n, a in sets_a.items()]
        return float(np.mean(each))

    whole = difference(slice(None), dict.fromkeys(sizes, slice(None)))
    id_stream, ood_stream = np.random.default_rng(seed).spawn(2)
    drawn = np.array(
        [
            difference(
                id_stream.integers(len(id_a), size=len(id_a)),
                {name: ood_stream.integers(size, size=size) for name, size in sizes.items()},
            )
            for _ in range(resamples)
        ]
    )
    low, high = np.quantile(drawn, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]).tolist()
    below, above = int((drawn <= 0).sum()), int((drawn >= 0).sum())
    p_value = min(1.0, 2 * (1 + min(below, above)) / (resamples + 1))
    return Difference(whole, low, high, p_value)


def _sets(scores: Scores) -> tuple[Floats, dict[str, Floats]]:
    if not scores[1]:
        raise InputError("there is no OOD set to compare on")
    return as_scores(scores[0], "id_scores"), {name: as_scores(ood, name) for name, ood in scores[1].items()}


@dataclass(frozen=True, eq=False)
class MeanAuroc:
    """The mean AUROC of a method over OOD sets, and what each image contributes to it."""

    value: float
    inside: Floats  # [n_id]: mean over sets
    outside: tuple[Floats, ...]  # [n_ood] for each set, divided by the number of sets

    @classmethod
    def of(cls, scores: Scores) -> MeanAuroc:
        """From (id_scores, {set: ood_scores}).

        >>> MeanAuroc.of(([3.0, 2.0, 4.0], {"a": [1.0, 2.5], "b": [0.0, 1.0]})).value
        0.9166666666666667
        """
        inner, sets = _sets(scores)
        return cls.over([cls._of_set(inner, ood) for ood in sets.values()])

    @classmethod
    def _of_set(cls, inner: Floats, outer: Floats) -> MeanAuroc:
        from scipy.stats import rankdata  # takes a second

        n_id, n_ood = len(inner), len(outer)
        if min(n_id, n_ood) < 2:
            raise InputError("a variance needs at least two ID and two OOD images")
        ranks = rankdata(np.concatenate([inner, outer]))
        # for each image the share of the other side that it is ranked against correctly
        inside = (ranks[:n_id] - rankdata(inner)) / n_ood
        outside = 1 - (ranks[n_id:] - rankdata(outer)) / n_id
        return cls(auroc(inner, outer), inside, (outside,))

    @classmethod
    def over(cls, sets: Sequence[MeanAuroc]) -> MeanAuroc:
        """The mean over OOD sets that share their ID images."""
        inside = np.mean([each.inside for each in sets], axis=0)
        outside = tuple(part / len(sets) for each in sets for part in each.outside)
        return cls(float(np.mean([each.value for each in sets])), inside, outside)

    def mixed(self, other: MeanAuroc, share: float) -> MeanAuroc:
        """The mean with another over the same images, which counts `share`: a further network, say."""
        self._check(other)
        mine = 1 - share
        outside = tuple(mine * a + share * b for a, b in zip(self.outside, other.outside, strict=True))
        return MeanAuroc(mine * self.value + share * other.value, mine * self.inside + share * other.inside, outside)

    def minus(self, other: MeanAuroc) -> Difference:
        """The difference of two methods on the same images."""
        self._check(other)
        value = self.value - other.value
        gaps = [a - b for a, b in zip((self.inside, *self.outside), (other.inside, *other.outside), strict=True)]
        spread = float(np.sqrt(sum(gap.var(ddof=1) / len(gap) for gap in gaps)))
        if spread == 0:  # both rank every pair alike
            return Difference(value, value, value, 1.0 if value == 0 else 0.0)
        reach = NormalDist().inv_cdf((1 + LEVEL) / 2) * spread
        return Difference(value, value - reach, value + reach, 2 * NormalDist().cdf(-abs(value) / spread))

    def _check(self, other: MeanAuroc) -> None:
        mine, theirs = ([len(self.inside), *map(len, self.outside)], [len(other.inside), *map(len, other.outside)])
        if mine != theirs:
            raise InputError(f"both must be of the same images, got {mine} and {theirs} ID and OOD images")


def find_tied_with_best(means: Mapping[str, MeanAuroc]) -> tuple[str, dict[str, float]]:
    """Return the method with the highest mean AUROC, and for every other the p-value of no difference to it.

    The best is selected on the same images, so p is corrected over all pairs of methods: it is the probability that
    among equal methods some pair differs by as many standard errors, under DeLong's covariance. If all methods are
    equal, some p-value is below 1 - LEVEL in at most that share of data sets. The others are tied with the best.

    >>> one = MeanAuroc.of(([3.0, 2.0, 4.0], {"a": [1.0, 2.5]}))
    >>> find_tied_with_best({"one": one, "same": one})
    ('one', {'same': 1.0})
    """
    if not means:
        raise InputError("there is no method to compare")
    best = max(means, key=lambda name: means[name].value)
    alone = {name: means[best].minus(mean).p_value for name, mean in means.items() if name != best}
    if len(alone) < 2:
        return best, alone
    largest = _largest_differences(list(means.values()))
    pairs = len(means) * (len(means) - 1) / 2

    def corrected(p_value: float) -> float:
        if p_value == 0 or p_value == 1:
            return p_value
        drawn = (1 + np.count_nonzero(largest >= -NormalDist().inv_cdf(p_value / 2))) / (1 + DRAWS)
        return float(min(drawn, pairs * p_value))  # Bonferroni's bound, where p is below what draws resolve

    return best, {name: corrected(p_value) for name, p_value in alone.items()}


DRAWS = 4000  # a p-value of 0.05 is off by 0.003 (one standard error)


def _largest_differences(means: Sequence[MeanAuroc]) -> Floats:
    """[DRAWS]: the largest difference between two methods, in standard errors, if all are equal."""
    sides = [np.stack(side) for side in zip(*((mean.inside, *mean.outside) for mean in means), strict=True)]
    covariance = sum((np.cov(side) / side.shape[1] for side in sides), np.zeros((len(means), len(means))))
    values, vectors = np.linalg.eigh(covariance)
    # the symmetric root, which does not depend on the signs that a machine gives the eigenvectors
    root = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    stream = np.random.default_rng(0)
    drawn = stream.standard_normal((DRAWS, len(means))) @ root
    variances = np.diagonal(covariance)
    found = np.zeros(DRAWS)
    for i in range(1, len(means)):
        variance = variances[:i] + variances[i] - 2 * covariance[i, :i]
        differ = variance > ALIKE * (variances[:i] + variances[i])
        gaps = np.abs(drawn[:, :i] - drawn[:, i : i + 1])[:, differ] / np.sqrt(variance[differ])
        found = np.maximum(found, gaps.max(axis=1, initial=0.0))
    # the variances are estimated from as many images as the smallest set has
    free = min(side.shape[1] for side in sides) - 1
    return np.asarray(found / np.sqrt(stream.chisquare(free, DRAWS) / free))


ALIKE = 1e-12  # of two variances: a smaller one of their difference is rounding


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
