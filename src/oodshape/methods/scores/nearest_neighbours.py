"""Scores by the nearest training images in a bank: KNN and NNGuide.

The bank is a seeded sample of at most 5,000 training images (`Moments`), saved with the detector.
"""

from __future__ import annotations

from typing import Annotated, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.values import AtLeast, Sizes
from oodshape.features.kernels import ROUNDING
from oodshape.features.moments import Statistic
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training_set import Training

BLOCK = 1 << 22  # products at once
ROWS = 1 << 16  # of a bank at once: a larger one is gone over in parts, which a block of images shares


class Terms(NamedTuple):
    """What makes a value of an inner product: (product + columns + rows) * factors."""

    columns: Tensor  # [B]
    rows: Tensor  # [n, 1]
    factors: Tensor | None = None  # [B]


def find_largest(products: Tensor, k: int, terms: Terms) -> Tensor:
    """[n, k]: the k largest values of each row, descending."""
    values = (products + terms.columns).add_(terms.rows)
    values = values if terms.factors is None else values.mul_(terms.factors)
    return values.topk(min(k, values.shape[1]), dim=1).values


def _best_products(z: Tensor, bank: Tensor, k: int, terms: Terms) -> Tensor:
    """[n, k]: the k largest values of the inner products of each row with the rows of the bank, descending.

    >>> plain = Terms(torch.zeros(2), torch.zeros(2, 1))
    >>> _best_products(torch.eye(2), torch.tensor([[1.0, 3.0], [2.0, 0.0]]), 1, plain)
    tensor([[2.],
            [3.]])
    """
    banks = torch.split(bank, ROWS)
    columns = torch.split(terms.columns, ROWS)
    factors = [None] * len(banks) if terms.factors is None else torch.split(terms.factors, ROWS)

    def best(part: Tensor, rows: Tensor) -> Tensor:
        each = zip(banks, columns, factors, strict=True)
        tops = [find_largest(part @ some.T, k, Terms(column, rows, factor)) for some, column, factor in each]
        return tops[0] if len(tops) == 1 else torch.cat(tops, dim=1).topk(min(k, len(bank)), dim=1).values

    if torch.compiler.is_compiling():  # a graph has one form for any batch
        return best(z, terms.rows)
    at_once = max(1, BLOCK // min(len(bank), ROWS))
    blocks = zip(torch.split(z, at_once), torch.split(terms.rows, at_once), strict=True)
    return torch.cat([best(*block) for block in blocks])


class BankScore(FittedScore):
    """What looks at the k nearest rows of a bank of directions, z / ||z||, stored around their mean.

    Around 0, features with a large common offset would differ by less than the rounding of their products.
    """

    center: Annotated[NDArray[np.float32], Sizes("M")]
    bank: Annotated[NDArray[np.float32], Sizes("B M")]
    k: Annotated[int, AtLeast(1)]

    def around(self, seen: Evidence) -> Tensor:
        """[n, M]: the directions less the center."""
        return seen.directions - self.tensor("center", seen.features)

    def nearest(self, seen: Evidence, z: Tensor, terms: Terms) -> Tensor:
        """[n, k]: `_best_products`; those of a small batch are kept for the next method with this bank.

        KNN and NNGuide of one fit share it: without this a fit of `auto` takes 18 % more CPU time (24,000 x 1,024).
        """
        kept, place, bank = seen.batch.bank_products, id(self.bank), self.tensor("bank", z)
        if torch.compiler.is_compiling() or len(z) * len(bank) > BLOCK:
            return _best_products(z, bank, self.k, terms)
        if place not in kept:
            kept[place] = z @ bank.T
        return find_largest(kept[place], self.k, terms)


class NeighbourDistance(BankScore):
    """Minus the distance of z / ||z|| to the k-th nearest row of the bank."""

    def of(self, seen: Evidence) -> Tensor:
        """Minus the distance: -||a - b||^2 = 2 (a . b - ||b||^2 / 2 - ||a||^2 / 2)."""
        z, bank = self.around(seen), self.tensor("bank", seen.features)
        halves = -0.5 * z.square().sum(dim=1, keepdim=True)
        columns = self.keep("halves", z, lambda: -0.5 * bank.square().sum(dim=1))
        squares = -2 * self.nearest(seen, z, Terms(columns, halves))[:, -1]
        # rounding of a product, which changes with the batch, is no distance
        return -torch.where(squares > -4 * ROUNDING * halves[:, 0], squares, 0.0).sqrt()


class Neighbours(ScoreRecipe):
    """What looks at the k nearest of a bank."""

    needs = frozenset([Statistic.BANK])

    k: Annotated[int, AtLeast(1)] = 10


class Knn(Neighbours):
    """Minus the distance of the normalised features to the k-th nearest in a bank (Sun et al., 2022).

    k = 10 is the paper's for a bank of a hundredth of ImageNet; a smaller bank than k gives its farthest row.
    """

    def fit(self, train: Training) -> NeighbourDistance:
        return NeighbourDistance(*train.moments(self.needs).directions, self.k)


class Guide(BankScore):
    """Energy times the mean of the k largest cosines, each times the energy of its row of the bank."""

    energies: Annotated[NDArray[np.float32], Sizes("B")]

    def of(self, seen: Evidence) -> Tensor:
        """Energy times the guidance; with the center c, a cosine is (a + c) . (b + c)."""
        z, center, bank = self.around(seen), self.tensor("center", seen.features), self.tensor("bank", seen.features)
        columns = self.keep("along", z, lambda: bank @ center + center @ center)
        terms = Terms(columns, (z @ center)[:, None], self.tensor("energies", z))
        return torch.logsumexp(seen.logits, dim=1) * self.nearest(seen, z, terms).mean(dim=1)


class NnGuide(Neighbours):
    """Energy * mean of the k best cosine * energy in a bank (NNGuide; Park et al., 2023)."""

    def fit(self, train: Training) -> Guide:
        head, moments = train.head.to("cpu"), train.moments(self.needs)
        return Guide(*moments.directions, self.k, moments.bank_outputs(head)[0].numpy())
