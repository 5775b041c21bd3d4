"""Scores by the nearest training images in a bank: KNN and NNGuide.

The bank is a seeded sample of at most 5,000 training images (`Moments`), saved with the detector.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.values import AtLeast, Sizes
from oodshape.features.kernels import ROUNDING
from oodshape.features.statistic import Statistic
from oodshape.methods.base import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training import Training

BLOCK = 1 << 22  # products at once
ROWS = 1 << 16  # of a bank at once: a larger one is gone over in parts, which a block of images shares


def best_products(z: Tensor, bank: Tensor, k: int, factors: Tensor | None = None) -> Tensor:
    """[n, k]: the k largest inner products of each row with the rows of the bank, times its factors, descending.

    >>> best_products(torch.eye(2), torch.tensor([[1.0, 3.0], [2.0, 0.0]]), 1)
    tensor([[2.],
            [3.]])
    """
    banks = torch.split(bank, ROWS)
    scales = [None] * len(banks) if factors is None else torch.split(factors, ROWS)

    def products(part: Tensor, rows: Tensor, scale: Tensor | None) -> Tensor:
        found = part @ rows.T
        return found if scale is None else found.mul_(scale)

    def best(part: Tensor) -> Tensor:
        both = zip(banks, scales, strict=True)
        tops = [products(part, rows, scale).topk(min(k, len(rows)), dim=1).values for rows, scale in both]
        return tops[0] if len(tops) == 1 else torch.cat(tops, dim=1).topk(min(k, len(bank)), dim=1).values

    rows = max(1, BLOCK // min(len(bank), ROWS))
    blocks = (z,) if torch.compiler.is_compiling() else torch.split(z, rows)  # a graph has one form for any batch
    return torch.cat([best(part) for part in blocks])


def nearest(seen: Evidence, scorer: NeighbourDistance | Guide, factors: Tensor | None = None) -> Tensor:
    """[n, k]: `best_products` of the directions; those of a small batch are kept for the next method with this bank.

    KNN and NNGuide of one fit share it: without this a fit of `auto` takes 18 % more CPU time (24,000 x 1,024).
    """
    z, kept, place = seen.directions, seen.batch.bank_products, id(scorer.bank)
    bank = scorer.tensor("bank", z)
    if torch.compiler.is_compiling() or len(z) * len(bank) > BLOCK:
        return best_products(z, bank, scorer.k, factors)
    if place not in kept:
        kept[place] = z @ bank.T
    products = kept[place] if factors is None else kept[place] * factors
    return products.topk(min(scorer.k, len(bank)), dim=1).values


@dataclass(frozen=True, eq=False, repr=False)
class NeighbourDistance(FittedScore):
    """Minus the distance of z / ||z|| to the k-th nearest row of the bank."""

    bank: Annotated[NDArray[np.float32], Sizes("B M")]  # of length 1
    k: Annotated[int, AtLeast(1)]

    def of(self, seen: Evidence) -> Tensor:
        """Minus the distance: ||a - b||^2 = 2 - 2 a . b for rows of length 1."""
        z = seen.directions
        squares = z.square().sum(dim=1) + 1 - 2 * nearest(seen, self)[:, -1]
        # rounding of a product, which changes with the batch, is no distance
        return -torch.where(squares > 2 * ROUNDING, squares, 0.0).sqrt()


@dataclass(frozen=True, eq=False, repr=False)
class Neighbours(ScoreRecipe):
    """What looks at the k nearest of a bank."""

    needs = frozenset([Statistic.BANK])

    k: Annotated[int, AtLeast(1)] = 10


@dataclass(frozen=True, eq=False, repr=False)
class Knn(Neighbours):
    """Minus the distance of the normalised features to the k-th nearest in a bank (Sun et al., 2022).

    k = 10 is the paper's for a bank of a hundredth of ImageNet; a smaller bank than k gives its farthest row.
    """

    def fit(self, train: Training) -> NeighbourDistance:
        return NeighbourDistance(train.moments(self.needs).directions, self.k)


@dataclass(frozen=True, eq=False, repr=False)
class Guide(FittedScore):
    """Energy times the mean of the k largest cosines, each times the energy of its row of the bank."""

    bank: Annotated[NDArray[np.float32], Sizes("B M")]  # of length 1
    k: Annotated[int, AtLeast(1)]
    energies: Annotated[NDArray[np.float32], Sizes("B")]

    def of(self, seen: Evidence) -> Tensor:
        guidance = nearest(seen, self, self.tensor("energies", seen.features)).mean(dim=1)
        return torch.logsumexp(seen.logits, dim=1) * guidance


@dataclass(frozen=True, eq=False, repr=False)
class NnGuide(Neighbours):
    """Energy * mean of the k best cosine * energy in a bank (NNGuide; Park et al., 2023)."""

    def fit(self, train: Training) -> Guide:
        head, moments = train.head.to("cpu"), train.moments(self.needs)
        energies = torch.cat([torch.logsumexp(head.logits(rows), dim=1) for rows in moments.bank()])
        return Guide(moments.directions, self.k, energies.numpy())
