"""ASH: shaping by the largest activations of each image (Djurisic et al., 2023), on the pooled vector."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import Fraction
from oodshape.images.identity import draw_keys, from_numbers
from oodshape.methods.slots import LearnsNothing, Shape, Shaper

# exp of more than this would overflow float32 in the logits; only features that cancel in the sum come near
LARGEST_EXPONENT = 60.0
WIDEST = 1 << 16  # features that ASH-Rand has noise for
Pruned = Annotated[float, Fraction(zero=True)]  # of the features of an image


def _count_kept(width: int, p: float) -> int:
    """The number of values that remain after dropping the share p: at least one."""
    return max(width - round(p * width), 1)


def mark_largest(z: Tensor, p: float) -> tuple[Tensor, int]:
    """([N, M] bool, k): the k = M - round(p M) largest values of each row."""
    kept = _count_kept(z.shape[1], p)
    # which of equal values are kept is topk's choice, as in the field: after a ReLU it matters to ASH-B
    chosen = torch.topk(z, kept, dim=1, sorted=False).indices
    return torch.zeros_like(z, dtype=torch.bool).scatter_(1, chosen, True), kept


def _exp_ratio(z: Tensor, top: Tensor) -> Tensor:
    """[N, 1]: exp of the sum of each row over that of its largest values; 1 where those add up to 0."""
    exponent = torch.where(top == 0, 0.0, z.sum(dim=1, keepdim=True) / torch.where(top == 0, 1.0, top))
    return exponent.clamp_(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp_()


class _Ash(LearnsNothing, Shape, Shaper):
    for_nonnegative = True  # it takes small values for unimportant ones

    p: Pruned


class AshP(_Ash):
    """The smallest share p of each row becomes 0.

    >>> AshP(p=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]]))
    tensor([[4., 0., 3., 0.]])
    """

    p: Pruned = 0.6

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.mul(z, mark_largest(z, self.p)[0], out=out)


class AshB(_Ash):
    """The kept values share the row's sum equally.

    >>> AshB(p=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]]))
    tensor([[5., 0., 5., 0.]])
    """

    p: Pruned = 0.65

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        keep, kept = mark_largest(z, self.p)
        return torch.mul(keep, z.sum(dim=1, keepdim=True) / kept, out=out)


class AshS(_Ash):
    """The kept values times exp(sum before / sum after pruning).

    >>> AshS(p=0.5)(torch.tensor([[4.0, 0.0, 4.0, 0.0]]))  # times e
    tensor([[10.8731,  0.0000, 10.8731,  0.0000]])
    """

    p: Pruned = 0.9

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        pruned = torch.mul(z, mark_largest(z, self.p)[0], out=out)
        return pruned.mul_(_exp_ratio(z, pruned.sum(dim=1, keepdim=True)))


class AshRand(_Ash):
    """The kept values become uniform noise on [0, 10): how little their size matters.

    The noise of a feature is a function of the seed and its place, the same for every image: whatever batch, order or
    processor an image goes through, its score is the same.
    """

    p: Pruned = 0.75
    high: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Draw the noise once: a graph then holds the numbers, not how they are drawn."""
        super().__post_init__()
        object.__setattr__(self, "_noise", torch.from_numpy(draw_uniform(WIDEST, self.seed)))

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        if z.shape[1] > WIDEST:
            raise InputError(f"ASH-Rand has noise for {WIDEST} features, got {z.shape[1]}")
        noise: Tensor = self._noise  # type: ignore[attr-defined]
        return torch.mul(noise[: z.shape[1]].to(z) * self.high, mark_largest(z, self.p)[0], out=out)


def draw_uniform(count: int, seed: int) -> NDArray[np.float32]:
    """[count] uniform numbers in [0, 1) that depend on the seed and their places alone."""
    draws = draw_keys(from_numbers(count), seed, "noise") >> np.uint64(40)
    return draws.astype(np.float32) * np.float32(2.0**-24)  # exact: 24 bits


class Scale(LearnsNothing, Shape, Shaper):
    """z exp(sum z / sum of the largest share 1 - p of z) (SCALE; Xu et al., 2024); meant for ReLU features.

    >>> Scale(p=0.5)(torch.tensor([[4.0, 0.0, 4.0, 0.0]]))  # times e
    tensor([[10.8731,  0.0000, 10.8731,  0.0000]])
    """

    for_nonnegative = True  # it takes the sum of the features for their size

    p: Pruned = 0.85

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """The scaled features; a row whose largest values add up to 0 stays as it is."""
        kept = _count_kept(z.shape[1], self.p)
        top = z.topk(kept, dim=1, sorted=False).values.sum(dim=1, keepdim=True)
        return torch.mul(z, _exp_ratio(z, top), out=out)
