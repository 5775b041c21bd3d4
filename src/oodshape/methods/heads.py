"""Heads: how shaped features become logits."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.values import ArrayValue, Fraction, Sizes
from oodshape.features.chunks import check_finite
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.methods.slots import Batch, FittedHead, HeadRecipe, LearnsNothing, Shape
from oodshape.methods.training_set import Training
from oodshape.networks.head import Head


class Linear(LearnsNothing, FittedHead, HeadRecipe):
    """The classifier's own head."""


class FrozenClass(LearnsNothing, FittedHead, HeadRecipe):
    """One logit: the weight row of the *unshaped* prediction times the shaped features, without bias."""

    def fuses(self, shape: Shape) -> bool:
        return isinstance(shape, PiecewiseConstant)

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


class Sparse(ArrayValue, FittedHead):
    """The classifier's head without the weights whose contribution to the mean logits is at most `threshold`."""

    mean: Annotated[NDArray[np.float32], Sizes("M")]
    threshold: float

    def bind(self, head: Head) -> Head:
        """The head with small contributions set to 0."""
        keep = head.weight * self.tensor("mean", head.weight) > self.threshold
        return Head(head.weight * keep, head.bias)


class Dice(HeadRecipe):
    """Drop the share p of all C x M weights with the smallest mean contribution (Sun & Li, 2022)."""

    p: Annotated[float, Fraction(zero=True)] = 0.7

    def fit(self, train: Training) -> Sparse:
        mean = train.mean().astype(np.float32)
        contribution: NDArray[Any] = train.head.weight.cpu().numpy() * mean
        return Sparse(mean=mean, threshold=float(np.quantile(contribution, self.p)))


class Lts(LearnsNothing, FittedHead, HeadRecipe):
    """Logits times (sum relu z / sum of the largest share of relu z)^2 (LTS; Djurisic et al., 2024)."""

    for_nonnegative = True  # it takes the sum of the positive features for the size of all

    share: Annotated[float, Fraction(one=True)] = 0.05

    def logits(self, batch: Batch, shape: Shape, layer: Head) -> Tensor:
        """[n, C]: the scaled logits; an image without a positive feature keeps its own."""
        z = batch.features.relu()
        top = z.topk(max(round(self.share * z.shape[1]), 1), dim=1, sorted=False).values.sum(dim=1, keepdim=True)
        factor = torch.where(top > 0, z.sum(dim=1, keepdim=True) / top.clamp_min(torch.finfo(top.dtype).tiny), 1.0)
        return super().logits(batch, shape, layer) * factor.square()
