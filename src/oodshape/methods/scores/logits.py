"""Scores of the logits alone: [N, C] -> [N], higher = more in-distribution."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.methods.slots import Score


@dataclass(frozen=True, eq=False, repr=False)
class MaxSoftmax(Score):
    """max softmax(logits / temperature) (Hendrycks & Gimpel, 2017).

    In float32 it is exactly 1 for every logit that leads by 17 or more: `LogSoftmax` tells these apart.

    >>> MaxSoftmax()(torch.tensor([[0.0, 0.0], [0.0, 100.0]]))
    tensor([0.5000, 1.0000])
    """

    temperature: float = 1.0

    def __post_init__(self) -> None:
        """Refuse a temperature that is not positive."""
        if not self.temperature > 0:
            raise InputError(f"temperature must be positive, got {self.temperature:g}")

    def __call__(self, logits: Tensor) -> Tensor:
        """The largest probability."""
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
        """The largest logit."""
        return logits.amax(dim=1)


@dataclass(frozen=True, eq=False, repr=False)
class Energy(Score):
    """log sum exp(logits) (Liu et al., 2020).

    >>> Energy()(torch.tensor([[0.0, 0.0]]))
    tensor([0.6931])
    """

    def __call__(self, logits: Tensor) -> Tensor:
        """The log of the summed exponentials."""
        return torch.logsumexp(logits, dim=1)
