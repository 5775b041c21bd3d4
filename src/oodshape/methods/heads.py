"""Heads: how shaped features become logits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError, check_fraction
from oodshape.core.fields import Sizes
from oodshape.core.values import ArrayValue
from oodshape.features.chunks import check_finite
from oodshape.methods.shapes.pieces import PiecewiseConstant
from oodshape.methods.slots import Batch, FittedHead, HeadRecipe, Shape
from oodshape.methods.training import Training
from oodshape.networks.head import Head


@dataclass(frozen=True, eq=False, repr=False)
class Linear(FittedHead, HeadRecipe):
    """The classifier's own head."""

    def fit(self, train: Training) -> Linear:
        """Itself."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class FrozenClass(FittedHead, HeadRecipe):
    """One logit: the weight row of the *unshaped* prediction times the shaped features, without bias."""

    def fuses(self, shape: Shape) -> bool:
        """With a piecewise constant shape."""
        return isinstance(shape, PiecewiseConstant)

    def fit(self, train: Training) -> FrozenClass:
        """Itself."""
        return self

    def logits(self, batch: Batch, shape: Shape, layer: Head) -> Tensor:
        """[n, 1]: never the whole head when the prediction is known."""
        if isinstance(shape, PiecewiseConstant):
            logit = shape.frozen_logits(batch.values, batch.classes, layer.weight)
            # a NaN or infinite feature always reaches the sum
            if batch.checked and not bool(torch.isfinite(logit).all()):
                check_finite(batch.raw, batch.first)
        else:
            logit = (shape(batch.features, batch.buffer) * layer.weight[batch.classes]).sum(dim=1)
        return logit[:, None]


@dataclass(frozen=True, eq=False, repr=False)
class Sparse(ArrayValue, FittedHead):
    """The classifier's head without the weights whose contribution to the mean logits is at most `threshold`."""

    mean: Annotated[NDArray[np.float32], Sizes("M")]
    threshold: float

    def bind(self, head: Head) -> Head:
        """The head with small contributions set to 0."""
        if len(self.mean) != head.width:
            raise InputError(f"fitted on {len(self.mean)} features, the head reads {head.width}")
        keep = head.weight * self.tensor("mean", head.weight) > self.threshold
        return Head(head.weight * keep, head.bias)


@dataclass(frozen=True, eq=False, repr=False)
class Dice(HeadRecipe):
    """Drop the share p of all C x M weights with the smallest mean contribution (Sun & Li, 2022)."""

    p: float = 0.7

    def __post_init__(self) -> None:
        """Refuse a share outside 0..1."""
        check_fraction("p", self.p, zero=True)

    def fit(self, train: Training) -> Sparse:
        """The mean features and the threshold on w * mean."""
        mean = train.mean().astype(np.float32)
        contribution: NDArray[Any] = train.head.weight.cpu().numpy() * mean
        return Sparse(mean=mean, threshold=float(np.quantile(contribution, self.p)))
