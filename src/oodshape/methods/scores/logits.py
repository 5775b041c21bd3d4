"""Scores of the logits alone: [N, C] -> [N], higher = more in-distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from oodshape.core.values import Positive
from oodshape.features.moments import Moments
from oodshape.features.statistic import TEMPERATURES, Statistic
from oodshape.methods.base import Evidence, FittedScore, Score, ScoreRecipe
from oodshape.methods.training import CHECKED, Training, by_label


@dataclass(frozen=True, eq=False, repr=False)
class MaxSoftmax(Score):
    """max softmax(logits / temperature) (Hendrycks & Gimpel, 2017).

    In float32 it is exactly 1 for every logit that leads by 17 or more: `LogSoftmax` tells these apart.

    >>> MaxSoftmax()(torch.tensor([[0.0, 0.0], [0.0, 100.0]]))
    tensor([0.5000, 1.0000])
    """

    temperature: Annotated[float, Positive()] = 1.0

    def __call__(self, logits: Tensor) -> Tensor:
        above = logits - logits.amax(dim=1, keepdim=True)
        return above.div_(self.temperature).exp_().sum(dim=1).reciprocal_()


@dataclass(frozen=True, eq=False, repr=False)
class LogSoftmax(Score):
    """max log softmax(logits): the order of `MaxSoftmax`, told apart where that is 1 in float32.

    >>> LogSoftmax()(torch.tensor([[0.0, 0.0], [0.0, 20.0], [0.0, 30.0]]))
    tensor([-6.9315e-01, -2.0612e-09, -9.3576e-14])
    """

    def __call__(self, logits: Tensor) -> Tensor:
        """The log of the largest probability, -log(1 + what the other classes have beside it)."""
        largest = logits.max(dim=1, keepdim=True)
        # the others alone: beside the 1 of the largest they would be lost
        others = (logits - largest.values).exp_().scatter_(1, largest.indices, 0.0).sum(dim=1)
        return -torch.log1p(others)

    def said(self, score: float) -> str:
        """The score and the probability that it is the log of."""
        return f"{score:.6g} (a probability of {math.exp(score):.6g})"


@dataclass(frozen=True, eq=False, repr=False)
class MaxLogit(Score):
    """max logit (Hendrycks et al., 2022).

    >>> MaxLogit()(torch.tensor([[1.0, 3.0]]))
    tensor([3.])
    """

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.amax(dim=1)


@dataclass(frozen=True, eq=False, repr=False)
class Energy(Score):
    """log sum exp(logits) (Liu et al., 2020).

    >>> Energy()(torch.tensor([[0.0, 0.0]]))
    tensor([0.6931])
    """

    def __call__(self, logits: Tensor) -> Tensor:
        return torch.logsumexp(logits, dim=1)


@dataclass(frozen=True, eq=False, repr=False)
class Tempered(FittedScore):
    """max log softmax(logits / temperature)."""

    temperature: Annotated[float, Positive()]

    def of(self, seen: Evidence) -> Tensor:
        return LogSoftmax()(seen.logits / self.temperature)


@dataclass(frozen=True, eq=False, repr=False)
class TemperatureScaling(ScoreRecipe):
    """max log softmax(logits / T), T the one at which the labels are most likely (Guo et al., 2017).

    The likelihood has its maximum where the mean logit under the probabilities equals that of the labels; it is read
    off sums at 13 temperatures between 1/8 and 8. ID images that were held out (`fit(..., held_out=...)`) serve where
    there are any: a network is surer of its training images. Without labels in the network's order T is 1.
    """

    needs = CHECKED | {Statistic.LABEL_SURPRISE}
    reads_features = False

    def fit(self, train: Training) -> Tempered:
        held_out = train.held_out
        moments = train.moments(self.needs) if held_out is None else held_out.moments(self.needs)
        ordered = by_label(moments, "auto")
        return Tempered(best_temperature(moments) if ordered else 1.0)


def best_temperature(moments: Moments) -> float:
    """Where the summed surprise is 0, between two temperatures in proportion; the first or last where it never is."""
    surprise = moments.parts[Statistic.LABEL_SURPRISE]  # falls as the temperature rises
    return float(2 ** np.interp(0.0, surprise[::-1], np.log2(TEMPERATURES)[::-1]))
