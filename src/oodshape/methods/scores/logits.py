"""Scores: what is seen of each image -> [N], higher = more in-distribution."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import ArrayValue, Value
from oodshape.methods.evidence import Evidence
from oodshape.methods.training import Training


class FittedScore(ArrayValue):
    """One number per image from what is seen of it."""

    def of(self, seen: Evidence) -> Tensor:
        """[N] scores."""
        raise NotImplementedError


class ScoreRecipe(Value):
    """A recipe for a score."""

    @property
    def needs(self) -> frozenset[str]:
        """The parts of `Moments` that fitting looks at."""
        return frozenset()

    @property
    def reads_features(self) -> bool:
        """Whether it looks at the features themselves, so that no shape and no other head may stand before it."""
        return True

    @property
    def wants_panel(self) -> bool:
        """Whether it chooses by a panel of images that no classifier should trust."""
        return False

    @property
    def exportable(self) -> bool:
        """Whether the fitted score can be traced into a graph (`wrap`, ONNX)."""
        return True

    def fit(self, train: Training) -> FittedScore:
        """The score that this recipe gives on a training set."""
        raise NotImplementedError


class Score(FittedScore, ScoreRecipe):
    """One number per image from its logits alone; nothing is learned."""

    @property
    def reads_features(self) -> bool:
        """No."""
        return False

    def fit(self, train: Training) -> Score:
        """Itself."""
        return self

    def of(self, seen: Evidence) -> Tensor:
        """[N] scores of the logits."""
        return self(seen.logits)

    def __call__(self, logits: Tensor) -> Tensor:
        """[N, C] logits -> [N] scores."""
        raise NotImplementedError


@dataclass(frozen=True, eq=False, repr=False)
class MaxSoftmax(Score):
    """max softmax(logits / temperature) (Hendrycks & Gimpel, 2017).

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
