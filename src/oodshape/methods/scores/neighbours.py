"""Scores by the nearest training images in a bank: KNN and NNGuide.

The bank is a seeded sample of at most 5,000 training images (`Moments`), saved with the detector.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.fields import AtLeast, Sizes
from oodshape.core.values import aligned, freeze
from oodshape.features.parts import Part
from oodshape.features.rows import ROUNDING, unit
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training import Training

AT_ONCE = 64  # rows of a bank that are brought to length 1
BLOCK = 1 << 22  # products at once
ROWS = 1 << 16  # of a bank at once: a larger one is gone over in parts, which a block of images shares


def best_products(z: Tensor, bank: Tensor, k: int) -> Tensor:
    """[n, k]: the k largest inner products of each row with the rows of the bank, descending.

    >>> best_products(torch.eye(2), torch.tensor([[1.0, 3.0], [2.0, 0.0]]), 1)
    tensor([[2.],
            [3.]])
    """
    banks = torch.split(bank, ROWS)

    def best(part: Tensor) -> Tensor:
        tops = [(part @ rows.T).topk(min(k, len(rows)), dim=1).values for rows in banks]
        return tops[0] if len(tops) == 1 else torch.cat(tops, dim=1).topk(min(k, len(bank)), dim=1).values

    rows = max(1, BLOCK // min(len(bank), ROWS))
    blocks = (z,) if torch.compiler.is_compiling() else torch.split(z, rows)  # a graph has one form for any batch
    return torch.cat([best(part) for part in blocks])


def _directions(bank: Tensor, factor: Callable[[Tensor], Tensor | float]) -> NDArray[np.float32]:
    """[B, M] frozen: the rows at length 1 times a factor, a few at a time: a bank is large."""
    rows = aligned(tuple(bank.shape), np.float32)
    for first in range(0, len(bank), AT_ONCE):
        part = bank[first : first + AT_ONCE]
        rows[first : first + AT_ONCE] = unit(part).mul_(factor(part)).numpy()
    return freeze(rows)


@dataclass(frozen=True, eq=False, repr=False)
class NeighbourDistance(FittedScore):
    """Minus the distance of z / ||z|| to the k-th nearest row of the bank."""

    bank: Annotated[NDArray[np.float32], Sizes("B M")]  # of length 1
    k: Annotated[int, AtLeast(1)]

    def of(self, seen: Evidence) -> Tensor:
        """Minus the distance: ||a - b||^2 = 2 - 2 a . b for rows of length 1."""
        z = seen.directions
        return self.scores(z, best_products(z, self.tensor("bank", z), self.k)[:, -1])

    def scores(self, z: Tensor, nearest: Tensor) -> Tensor:
        """[n]: of rows of length 1, and their k-th largest products with the bank."""
        squares = z.square().sum(dim=1) + 1 - 2 * nearest
        # rounding of a product, which changes with the batch, is no distance
        return -torch.where(squares > 2 * ROUNDING, squares, 0.0).sqrt()


@dataclass(frozen=True, eq=False, repr=False)
class Neighbours(ScoreRecipe):
    """What looks at the k nearest of a bank."""

    k: int = 10

    def __post_init__(self) -> None:
        """Refuse no neighbours."""
        if self.k < 1 or self.k != int(self.k):
            raise InputError(f"k must be a whole number of at least 1, got {self.k}")

    @property
    def needs(self) -> frozenset[Part]:
        """A bank of training images."""
        return frozenset([Part.BANK])


@dataclass(frozen=True, eq=False, repr=False)
class Knn(Neighbours):
    """Minus the distance of the normalised features to the k-th nearest in a bank (Sun et al., 2022).

    k = 10 is the paper's for a bank of a hundredth of ImageNet; a smaller bank than k gives its farthest row.
    """

    def fit(self, train: Training) -> NeighbourDistance:
        """The normalised bank."""
        return NeighbourDistance(_directions(train.moments(self.needs).bank(), lambda _: 1.0), self.k)


@dataclass(frozen=True, eq=False, repr=False)
class Guide(FittedScore):
    """Energy times the mean of the k largest cosines, each times the energy of its row of the bank."""

    bank: Annotated[NDArray[np.float32], Sizes("B M")]  # of length 1, times the energy
    k: Annotated[int, AtLeast(1)]

    def of(self, seen: Evidence) -> Tensor:
        """The guided energy."""
        guidance = best_products(seen.directions, self.tensor("bank", seen.features), self.k).mean(dim=1)
        return torch.logsumexp(seen.logits, dim=1) * guidance

    def energies_beside(self, other: NeighbourDistance) -> Tensor | None:
        """[B]: what the rows of the other bank were multiplied by to give these; None: they are of other images."""
        known = self._beside.get(id(other))
        if known is None:
            known = self._beside[id(other)] = other, _factors(self.bank, other.bank)
        return known[1]

    @cached_property
    def _beside(self) -> dict[int, tuple[NeighbourDistance, Tensor | None]]:
        return {}


def _factors(rows: NDArray[np.float32], units: NDArray[np.float32]) -> Tensor | None:
    """[B]: the factors that make rows of length 1 these rows, or None where they are no multiples of them."""
    if rows.shape != units.shape:
        return None
    factors = np.einsum("bm,bm->b", rows, units)
    for first in range(0, len(rows), 500):
        part = slice(first, first + 500)
        if not np.allclose(rows[part], units[part] * factors[part, None], rtol=1e-4, atol=1e-5 * np.abs(factors).max()):
            return None
    return torch.from_numpy(factors)


def both(distance: NeighbourDistance, guide: Guide, factors: Tensor, seen: Evidence) -> tuple[Tensor, Tensor]:
    """The scores of both, whose banks are of the same images, from one product with the bank."""
    z = seen.directions
    bank = distance.tensor("bank", z)
    nearest, guidance = [], []
    for part in torch.split(z, max(1, BLOCK // len(bank))):
        products = part @ bank.T
        nearest.append(products.topk(min(distance.k, len(bank)), dim=1).values[:, -1])
        guidance.append(products.mul_(factors.to(z.device)).topk(min(guide.k, len(bank)), dim=1).values.mean(dim=1))
    return distance.scores(z, torch.cat(nearest)), torch.logsumexp(seen.logits, dim=1) * torch.cat(guidance)


@dataclass(frozen=True, eq=False, repr=False)
class NnGuide(Neighbours):
    """Energy * mean of the k best cosine * energy in a bank (NNGuide; Park et al., 2023)."""

    def fit(self, train: Training) -> Guide:
        """The normalised bank, times its energies."""
        head = train.head.to("cpu")
        bank = train.moments(self.needs).bank()
        return Guide(_directions(bank, lambda z: torch.logsumexp(head.logits(z), dim=1, keepdim=True)), self.k)
