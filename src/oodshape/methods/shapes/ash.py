"""ASH: shaping by the largest activations of each image (Djurisic et al., 2023), on the pooled vector."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError, check_fraction
from oodshape.images.identity import keys, numbered
from oodshape.methods.slots import Shape, Shaper
from oodshape.methods.training import Training

# exp of more than this would overflow float32 in the logits; only features that cancel in the sum come near
LARGEST_EXPONENT = 60.0
WIDEST = 1 << 16  # features that ASH-Rand has noise for


def kept_of(width: int, p: float) -> int:
    """How many of so many values are kept where a share p of them is not: one at least."""
    return max(width - round(p * width), 1)


def largest(z: Tensor, p: float) -> tuple[Tensor, int]:
    """([N, M] bool, k): the k = M - round(p M) largest values of each row."""
    kept = kept_of(z.shape[1], p)
    # which of equal values are kept is topk's choice, as in the field: after a ReLU it matters to ASH-B
    chosen = torch.topk(z, kept, dim=1, sorted=False).indices
    return torch.zeros_like(z, dtype=torch.bool).scatter_(1, chosen, True), kept


@dataclass(frozen=True, eq=False, repr=False)
class _Ash(Shape, Shaper):
    p: float

    def __post_init__(self) -> None:
        """Refuse a share outside 0..1."""
        check_fraction("p", self.p, zero=True)

    @property
    def for_nonnegative(self) -> bool:
        """Yes: it takes small values for unimportant ones."""
        return True

    def fit(self, train: Training) -> Shape:
        """Itself: nothing is learned."""
        return self


@dataclass(frozen=True, eq=False, repr=False)
class AshP(_Ash):
    """The smallest share p of each row becomes 0.

    >>> AshP(p=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]]))
    tensor([[4., 0., 3., 0.]])
    """

    p: float = 0.6

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """The pruned features."""
        return torch.mul(z, largest(z, self.p)[0], out=out)


@dataclass(frozen=True, eq=False, repr=False)
class AshB(_Ash):
    """The kept values share the row's sum equally.

    >>> AshB(p=0.5)(torch.tensor([[4.0, 1.0, 3.0, 2.0]]))
    tensor([[5., 0., 5., 0.]])
    """

    p: float = 0.65

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """The binarised features."""
        keep, kept = largest(z, self.p)
        return torch.mul(keep, z.sum(dim=1, keepdim=True) / kept, out=out)


@dataclass(frozen=True, eq=False, repr=False)
class AshS(_Ash):
    """The kept values times exp(sum before / sum after pruning).

    >>> AshS(p=0.5)(torch.tensor([[4.0, 0.0, 4.0, 0.0]]))  # times e
    tensor([[10.8731,  0.0000, 10.8731,  0.0000]])
    """

    p: float = 0.9

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """The pruned and scaled features."""
        pruned = torch.mul(z, largest(z, self.p)[0], out=out)
        after = pruned.sum(dim=1, keepdim=True)
        exponent = torch.where(after == 0, 0.0, z.sum(dim=1, keepdim=True) / torch.where(after == 0, 1.0, after))
        return pruned.mul_(exponent.clamp_(-LARGEST_EXPONENT, LARGEST_EXPONENT).exp_())


@dataclass(frozen=True, eq=False, repr=False)
class AshRand(_Ash):
    """The kept values become uniform noise on [0, 10): how little their size matters.

    The noise of a feature is a function of the seed and its place, the same for every image: whatever batch, order or
    processor an image goes through, its score is the same.
    """

    p: float = 0.75
    high: float = 10.0
    seed: int = 0

    def __post_init__(self) -> None:
        """Draw the noise once: a graph then holds the numbers, not how they are drawn."""
        super().__post_init__()
        object.__setattr__(self, "_noise", torch.from_numpy(uniform(WIDEST, self.seed)))

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """The pruned features with noise in place of the kept values."""
        if z.shape[1] > WIDEST:
            raise InputError(f"ASH-Rand has noise for {WIDEST} features, got {z.shape[1]}")
        noise: Tensor = self._noise  # type: ignore[attr-defined]
        return torch.mul(noise[: z.shape[1]].to(z) * self.high, largest(z, self.p)[0], out=out)


def uniform(count: int, seed: int) -> NDArray[np.float32]:
    """[count] uniform numbers in [0, 1) that depend on the seed and their places alone."""
    draws = keys(numbered(count), seed, "noise") >> np.uint64(40)
    return draws.astype(np.float32) * np.float32(2.0**-24)  # exact: 24 bits
