"""NECO: how much of an image's features lies in the principal subspace (Ammar et al., 2024)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg import eigh
from torch import Tensor

from oodshape.core.errors import check_fraction
from oodshape.core.fields import Sizes
from oodshape.features.parts import Part
from oodshape.features.rows import TINY
from oodshape.features.sum_kernels import noise, torchs_threads
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training import Training

ROUNDING = 1e-9  # of a share of variance


@dataclass(frozen=True, eq=False, repr=False)
class Subspace(FittedScore):
    """||P t|| / ||t||, times the largest logit where `logit`, with t = (z - mean) / scale."""

    mean: Annotated[NDArray[np.float32], Sizes("M")]
    scale: Annotated[NDArray[np.float32], Sizes("M")]
    axes: Annotated[NDArray[np.float32], Sizes("M K")]
    logit: bool

    def of(self, seen: Evidence) -> Tensor:
        """The share of the length that lies in the subspace."""
        t = (seen.features - self.tensor("mean", seen.features)) / self.tensor("scale", seen.features)
        inside: Tensor = torch.linalg.vector_norm(t @ self.tensor("axes", t), dim=1)
        share: Tensor = inside / torch.linalg.vector_norm(t, dim=1).clamp_min(TINY)
        return share * seen.logits.amax(dim=1) if self.logit else share


@dataclass(frozen=True, eq=False, repr=False)
class Neco(ScoreRecipe):
    """The share of the standardised features' length in their principal subspace, times the largest logit.

    The subspace holds a share `variance` of the training features' variance. The authors leave the logit out on
    ResNets: `logit=False`.
    """

    variance: float = 0.9
    logit: bool = True

    def __post_init__(self) -> None:
        """Refuse a share outside 0..1."""
        check_fraction("variance", self.variance, one=True)

    @property
    def needs(self) -> frozenset[Part]:
        """The second moment."""
        return frozenset([Part.SECOND])

    def fit(self, train: Training) -> Subspace:
        """Mean, scale and axes of the training features."""
        second, mean = train.moments(self.needs).parts[Part.SECOND], train.mean()
        covariance = second / train.n
        center = torch.from_numpy(mean)
        torch.from_numpy(covariance).addr_(center, center, alpha=-1)
        variance, rounding = np.diagonal(covariance), noise(train.n, len(mean)) * np.diagonal(second) / train.n
        scale = np.sqrt(np.where(variance > rounding, variance, 1.0))  # one that never changes is not scaled
        covariance /= scale
        covariance /= scale[:, None]
        with torchs_threads():  # in the covariance's own memory
            values, axes = eigh(covariance.T, driver="evd", overwrite_a=True, check_finite=False)  # ascending
        shares = np.cumsum(np.maximum(values[::-1], 0.0))
        kept = 1 + int(np.searchsorted(shares, (self.variance - ROUNDING) * shares[-1]))
        return Subspace(mean, scale, axes[:, ::-1][:, :kept], self.logit)
