"""OptFS: the optimal piecewise-constant shaping function in closed form (Zhao et al., ICLR 2024)."""

from __future__ import annotations

import math
import warnings
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Positive
from oodshape.features.features import TOLD, warn_if_by_chance
from oodshape.methods.shapes.piecewise import Grid, PiecewiseConstant
from oodshape.methods.slots import Shape, Shaper
from oodshape.methods.training_set import Training

Array = NDArray[Any]
Bound = Literal["theta", "features"]
NO_IMPACT = "every interval has impact 0: the features or the head's weights are all zero"
FEWEST = 20  # images, below which theta is mostly noise
MOST_FROM_HISTOGRAM = 200  # with more intervals than this, cut bins would show in theta


class OptFS(Shaper):
    """theta of k equal intervals that makes the mean max logit of shaped training features largest.

    The intervals lie between the `tail` and 1 - `tail` quantiles of all training features. With n_k = E[I_k(z)],
    the mean impact on the max logit of the features in interval k, there are two bounds:

    - `theta` (the paper): ||theta||^2 = k gives theta_k ~ n_k; `norm` is another length (the authors' code: 1000).
    - `features`: sum_k theta_k^2 S_k = sum_k S_k, with S_k = E[sum of z^2 in interval k], gives theta_k ~ n_k / S_k:
      shaped features keep their energy, and how many values an interval holds no longer matters. Signed features
      outside the limits take theta of the end interval; otherwise they become 0, as in the paper.

    Limits and impacts are exact if the features are available. From statistics alone (parts, Ray) they are those of a
    histogram with bins of relative width 2^-11 or less; more than 200 intervals need the features.
    """

    k: Annotated[int, AtLeast(1)] = 100
    tail: float = 0.001
    norm: Annotated[float, Positive()] | None = None
    bound: Bound = "theta"

    def __post_init__(self) -> None:
        if not 0 <= self.tail < 0.5:
            hint = f"; did you mean {self.tail / 100:g}?" if 0.5 <= self.tail < 50 else ""
            raise InputError(f"tail must lie in [0, 0.5), got {self.tail:g}{hint}")
        if self.bound == "features" and self.norm is not None:
            raise InputError(f"norm is the length of theta, which bound='features' leaves free; got {self.norm:g}")

    def fit(self, train: Training) -> PiecewiseConstant:
        """Fit the optimal shaping function: from the features if they are available, else from their histogram."""
        grid = Grid.between(*self.limits(train), self.k)
        edges, pair = grid.edges(), (grid.origin, grid.scale)
        if self._exact(train):
            impact, energy = train.features.interval_sums(*pair, self.k).T / train.n
        else:
            impact, energy = train.stats.impact(edges), train.stats.energy(edges)
        if self.bound == "theta":
            return PiecewiseConstant(edges, self.solve(impact), pair)
        return PiecewiseConstant(edges, solve_theta(impact, energy), pair, ends=train.signed)

    def _exact(self, train: Training) -> bool:
        """Whether to go over the features: not where each value has a bin of its own (float16)."""
        if train.maybe_features is None and self.k <= MOST_FROM_HISTOGRAM:
            return False
        return train.stats.bits == 32 if train.maybe_features is None else not train.maybe_features.half

    def solve(self, direction: Array) -> NDArray[np.float32]:
        """[K] float32: the given direction with norm sqrt(k), or the norm asked for."""
        length = float(np.linalg.norm(direction))
        if length == 0:
            raise InputError(NO_IMPACT)
        norm = math.sqrt(self.k) if self.norm is None else self.norm
        return np.asarray(direction / length * norm).astype(np.float32)

    def limits(self, train: Training) -> tuple[float, float]:
        """(alpha, beta): the quantiles; beta lies above the largest value when tail = 0."""
        source = train.features if self._exact(train) else train.stats
        alpha, beta = source.quantile(self.tail), source.quantile(1 - self.tail)
        if not alpha < beta:
            raise InputError(
                f"the features are constant: their {self.tail:g} and {1 - self.tail:g} quantiles are both {alpha:g}"
            )
        if self.tail == 0:
            beta = float(np.nextafter(np.float32(beta), np.float32(np.inf)))
        return alpha, beta


def warn_if_meaningless(train: Training) -> None:
    """Warn of too few images, and of a network that seems untrained by its labels or its head."""
    if train.n < FEWEST:
        warnings.warn(f"theta comes from {train.n} images only and is mostly noise: give some hundred", stacklevel=3)
    elif train.maybe_features is not None and train.maybe_features.accuracy is None:
        train.maybe_features.warn_if_untrained()
    elif train.maybe_features is not None and train.n >= TOLD:
        warn_if_by_chance(train.maybe_features.accuracy, train.n, train.head.classes)


def solve_theta(impact: Array, energy: Array) -> NDArray[np.float32]:
    """[K] float32: theta_k ~ impact_k / energy_k with sum theta^2 energy = sum energy; 0 where there is no energy.

    >>> [f"{theta:.3f}" for theta in solve_theta(np.array([2.0, 0.0, 3.0]), np.array([1.0, 0.0, 9.0]))]
    ['2.828', '0.000', '0.471']
    """
    # an energy that float32 could not tell from 0 next to the others would make theta overflow
    some = energy > np.finfo(np.float32).tiny * energy.sum()
    theta = np.divide(impact, energy, out=np.zeros_like(impact), where=some)
    length = float((theta**2 * energy).sum())
    if length == 0:
        raise InputError(NO_IMPACT)
    # positive whatever the sign of the impacts: a network may lower its max logit on the whole
    return np.asarray(theta * math.sqrt(energy.sum() / length)).astype(np.float32)


class BySign(Shaper):
    """One recipe for signed features (`Training.signed`), another for those after a ReLU."""

    signed: Shaper = OptFS(bound="features")
    plain: Shaper = OptFS()

    def fit(self, train: Training) -> Shape:
        if train.maybe_features is not None and train.maybe_features.half:
            _ = train.stats  # both recipes need them, and they know the signs
        return (self.signed if train.signed else self.plain).fit(train)
