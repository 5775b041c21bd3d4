"""Scores fitted as OpenOOD v1.5 fits them: banks of a share of all training images, means over all of them.

The fitted scores are those of the other files; only what they are fitted on differs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError, check_fraction
from oodshape.features.parts import Part
from oodshape.features.rows import unit
from oodshape.images.identity import smallest
from oodshape.methods.scores.boundaries import BoundaryDistance, Fdbd
from oodshape.methods.scores.labelled import CHECKED, by_label
from oodshape.methods.scores.neighbours import Guide, NeighbourDistance, Neighbours
from oodshape.methods.scores.temperature import TemperatureScaling, Tempered
from oodshape.methods.scores.vim import Vim, VirtualLogit
from oodshape.methods.training import Training


def bank_of(train: Training, share: float) -> Tensor:
    """[B, M] float32: a share of the training images, chosen by which images they are; at least one."""
    features = train.features
    if share < 1:
        features = features[smallest(features.identities, max(round(share * len(features)), 1), 0, "bank")]
    bank = torch.empty(len(features), features.width)
    for first, raw in features.chunks():
        bank[first : first + len(raw)] = raw.float()
    return bank


@dataclass(frozen=True, eq=False, repr=False)
class _OfShare(Neighbours):
    share: float = 1.0

    def __post_init__(self) -> None:
        """Refuse settings that have no meaning."""
        super().__post_init__()
        check_fraction("share", self.share, one=True)

    @property
    def needs(self) -> frozenset[Part]:
        """None: it goes over the features."""
        return frozenset()


@dataclass(frozen=True, eq=False, repr=False)
class ShareKnn(_OfShare):
    """Minus the distance to the k-th nearest of a share of all training images, however many these are."""

    k: int = 50

    def fit(self, train: Training) -> NeighbourDistance:
        """The normalised bank."""
        return NeighbourDistance(unit(bank_of(train, self.share)).numpy(), self.k)


@dataclass(frozen=True, eq=False, repr=False)
class ShareNnGuide(_OfShare):
    """NNGuide with a bank of a share of all training images, however many these are."""

    k: int = 100
    share: float = 0.01

    def fit(self, train: Training) -> Guide:
        """The normalised bank and its energies."""
        bank = bank_of(train, self.share)
        energies = torch.logsumexp(train.head.to("cpu").logits(bank), dim=1)
        return Guide(unit(bank).numpy(), self.k, energies.numpy())


@dataclass(frozen=True, eq=False, repr=False)
class WholeVim(Vim):
    """ViM with alpha over all training images, and exactly the dimensions that are asked for."""

    dimensions: int | None = 256

    def fit(self, train: Training) -> VirtualLogit:
        """The residual space and alpha."""
        wanted, width = self.dimensions, train.head.width
        if wanted is not None and wanted >= width:
            raise InputError(f"{wanted} dimensions leave no residual of {width} features; ask for fewer")
        fitted = replace(super().fit(train), alpha=1.0)
        head = train.head.to("cpu")
        largest, residual = 0.0, 0.0
        for _, raw in train.features.chunks():
            z = raw.float()
            largest += float(head.logits(z).amax(dim=1).double().sum())
            residual += float(fitted.residual(z).double().sum())
        return replace(fitted, alpha=largest / residual if residual > 0 else 0.0)


@dataclass(frozen=True, eq=False, repr=False)
class LikeliestTemperature(TemperatureScaling):
    """Temperature scaling at the maximum of the likelihood itself, for sets of which all logits fit into memory."""

    @property
    def needs(self) -> frozenset[Part]:
        """What says whether labels are in the network's order."""
        return CHECKED

    def fit(self, train: Training) -> Tempered:
        """The temperature, by halving the range in which the mean logit passes that of the labels."""
        by_label(train.moments(CHECKED), "labels")
        features, head = train.features, train.head.to("cpu")
        assert features.labels is not None
        logits = torch.cat([head.logits(raw.float()).double() for _, raw in features.chunks()])
        own = float(logits.gather(1, features.labels[:, None]).mean())
        low, high = -5.0, 5.0  # of the log of the temperature
        for _ in range(40):
            middle = (low + high) / 2
            mean = float(((logits / math.exp(middle)).softmax(dim=1) * logits).sum(dim=1).mean())
            low, high = (middle, high) if mean > own else (low, middle)
        return Tempered(math.exp(low))


@dataclass(frozen=True, eq=False, repr=False)
class LengthFdbd(Fdbd):
    """fDBD over the length of the features instead of their distance to the mean feature."""

    def fit(self, train: Training) -> BoundaryDistance:
        """A mean feature of 0."""
        zeros: NDArray[Any] = np.zeros(train.head.width, np.float32)
        return BoundaryDistance(zeros)
