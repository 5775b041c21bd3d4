"""Scaling by how concentrated the features of an image are: SCALE on the features, LTS on the logits."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oodshape.core.errors import check_fraction
from oodshape.methods.shapes.ash import LARGEST_EXPONENT, kept_of
from oodshape.methods.slots import Batch, FittedHead, HeadRecipe, Shape, Shaper
from oodshape.methods.training import Training
from oodshape.networks.head import Head


@dataclass(frozen=True, eq=False, repr=False)
class Scale(Shape, Shaper):
    """z exp(sum z / sum of the largest share 1 - p of z) (SCALE; Xu et al., 2024); meant for ReLU features.

    >>> Scale(p=0.5)(torch.tensor([[4.0, 0.0, 4.0, 0.0]]))  # times e
    tensor([[10.8731,  0.0000, 10.8731,  0.0000]])
    """

    p: float = 0.85

    def __post_init__(self) -> None:
        """Refuse a share outside 0..1."""
        check_fraction("p", self.p, zero=True)

    @property
    def for_nonnegative(self) -> bool:
        """Yes: it takes the sum of the features for their size."""
        return True

    def fit(self, train: Training) -> Scale:
        """Itself: nothing is learned."""
        return self

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """The scaled features; a row whose largest values add up to 0 stays as it is."""
        kept = kept_of(z.shape[1], self.p)
        top = z.topk(kept, dim=1, sorted=False).values.sum(dim=1, keepdim=True)
        exponent = torch.where(top == 0, 0.0, z.sum(dim=1, keepdim=True) / torch.where(top == 0, 1.0, top))
        return torch.mul(z, exponent.clamp_(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp_(), out=out)


@dataclass(frozen=True, eq=False, repr=False)
class Lts(FittedHead, HeadRecipe):
    """Logits times (sum relu z / sum of the largest share of relu z)^2 (LTS; Djurisic et al., 2024)."""

    share: float = 0.05

    def __post_init__(self) -> None:
        """Refuse a share outside 0..1."""
        check_fraction("share", self.share, one=True)

    @property
    def for_nonnegative(self) -> bool:
        """Yes: it takes the sum of the positive features for the size of all."""
        return True

    def fit(self, train: Training) -> Lts:
        """Itself: nothing is learned."""
        return self

    def logits(self, batch: Batch, shape: Shape, layer: Head) -> Tensor:
        """[n, C]: the scaled logits; an image without a positive feature keeps its own."""
        z = batch.features.relu()
        top = z.topk(max(round(self.share * z.shape[1]), 1), dim=1, sorted=False).values.sum(dim=1, keepdim=True)
        factor = torch.where(top > 0, z.sum(dim=1, keepdim=True) / top.clamp_min(torch.finfo(top.dtype).tiny), 1.0)
        return super().logits(batch, shape, layer) * factor.square()
