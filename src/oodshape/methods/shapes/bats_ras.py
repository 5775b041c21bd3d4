"""Shaping towards what is typical of the training set: BATS by feature, RAS by rank."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.values import ArrayValue, Ascending, Positive, Sizes
from oodshape.features.kernels import sort_places
from oodshape.features.moments import Statistic
from oodshape.methods.slots import Shape, Shaper
from oodshape.methods.training_set import Training


class Box(ArrayValue, Shape):
    """f(z_i) = z_i between low_i and high_i, the limit beyond.

    >>> Box(low=[0.0, 0.0], high=[1.0, 2.0])(torch.tensor([[-1.0, 1.5], [1.5, 2.5]]))
    tensor([[0.0000, 1.5000],
            [1.0000, 2.0000]])
    """

    pointwise = False  # each feature has its limits

    low: Annotated[NDArray[np.float32], Sizes("M")]
    high: Annotated[NDArray[np.float32], Sizes("M")]

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.clamp(z, self.tensor("low", z), self.tensor("high", z), out=out)


class Bats(Shaper):
    """Each feature clipped to its training mean +- width standard deviations (BATS; Zhu et al., 2022)."""

    needs = frozenset([Statistic.SQUARES])

    width: Annotated[float, Positive()] = 1.0

    def fit(self, train: Training) -> Box:
        squares, mean = train.moments(self.needs).parts[Statistic.SQUARES], train.mean()
        variance = squares / train.n - mean**2
        reach = self.width * np.sqrt(np.maximum(variance, 0.0))
        return Box(mean - reach, mean + reach)


class Profile(ArrayValue, Shape):
    """The i-th smallest feature of a row becomes the i-th value of the profile; equal ones by their place.

    >>> Profile(values=[0.0, 1.0, 5.0])(torch.tensor([[0.3, 9.0, 0.2]]))
    tensor([[1., 5., 0.]])
    """

    pointwise = False  # a value depends on the others of its row

    values: Annotated[NDArray[np.float32], Sizes("M"), Ascending()]

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        order = sort_places(z)
        shaped = torch.empty_like(z) if out is None else out
        return shaped.scatter_(1, order, self.tensor("values", z).expand_as(z))


class Ras(Shaper):
    """The mean sorted training row in place of each sorted row (RAS, 2026): only the order of features counts."""

    needs = frozenset([Statistic.PROFILE])

    def fit(self, train: Training) -> Profile:
        mean = train.moments(self.needs).parts[Statistic.PROFILE] / train.n
        return Profile(mean.astype(np.float32))
