"""Mahalanobis distances of normalised features: MDS++ and RMDS++ (Mueller & Hein, 2025)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.linalg.lapack import dtrtri
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.fields import Sizes
from oodshape.features.moments import Moments
from oodshape.features.parts import Part
from oodshape.features.sum_kernels import exact, torchs_threads
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training import Training

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Clusters(FittedScore):
    """-min over classes of ||(z / ||z|| - center) A - mean_c||^2."""

    center: Annotated[NDArray[np.float32], Sizes("M")]
    whitening: Annotated[NDArray[np.float32], Sizes("M M")]
    means: Annotated[NDArray[np.float32], Sizes("K M")]  # of the K classes seen, whitened

    def of(self, seen: Evidence) -> Tensor:
        """Minus the squared distance to the nearest class."""
        z = (seen.directions - self.tensor("center", seen.features)) @ self.tensor("whitening", seen.features)
        means = self.tensor("means", z)
        nearest = (means.square().sum(dim=1) - 2 * z @ means.T).amin(dim=1)
        return -(nearest + z.square().sum(dim=1))


@dataclass(frozen=True, eq=False, repr=False)
class RelativeClusters(Clusters):
    """The same plus the squared distance to all images as one Gaussian."""

    background: Annotated[NDArray[np.float32], Sizes("M M")]

    def of(self, seen: Evidence) -> Tensor:
        """Minus the squared distance to the nearest class, relative to the background's."""
        z = (seen.directions - self.tensor("center", seen.features)) @ self.tensor("background", seen.features)
        return super().of(seen) + z.square().sum(dim=1)


@dataclass(frozen=True, eq=False, repr=False)
class MdsPlus(ScoreRecipe):
    """-min_c (z' - mu_c)' S^-1 (z' - mu_c) with z' = z / ||z||: MDS++ (Mueller & Hein, 2025).

    mu_c is the mean of the images predicted as c; classes never predicted are no candidates. S is the covariance
    within classes, shrunk towards its mean variance (OAS; Chen et al., 2010), so that it has an inverse however
    few the images are. Where every class was predicted once at most it is the covariance of all images.
    """

    @property
    def needs(self) -> frozenset[Part]:
        """Class sums and the second moment of normalised features."""
        return frozenset([Part.COUNTS, Part.UNIT_CLASS_SUMS, Part.UNIT_SECOND])

    def fit(self, train: Training) -> Clusters:
        """The whitened class means."""
        return Clusters(*self._solved(train))

    def _solved(self, train: Training) -> tuple[Array, Array, Array]:
        """(center [M], whitening within classes [M, M], whitened means [K, M])."""
        moments = train.moments(self.needs)
        counts, n = moments.parts[Part.COUNTS], moments.n
        means, seen = moments.means(Part.UNIT_CLASS_SUMS)
        if n < 2:
            raise InputError(f"a covariance needs at least 2 training images, got {n}")
        center = moments.parts[Part.UNIT_CLASS_SUMS].sum(axis=0) / n
        free = n - int(seen.sum())
        within = whitened(_scatter(moments, means[seen], counts[seen]), free) if free else self._all(train, center)
        return center, within, (means[seen] - center) @ within

    def _all(self, train: Training, center: Array) -> Array:
        """[M, M] whitening of all images together."""
        moments = train.moments(self.needs)
        return whitened(_scatter(moments, center[None], np.array([float(moments.n)])), moments.n - 1)


def _scatter(moments: Moments, means: Array, counts: Array) -> Array:
    """[M, M]: the second moment of normalised features around means [K, M] that stand for `counts` images each."""
    scatter = torch.from_numpy(moments.parts[Part.UNIT_SECOND].copy())
    return np.asarray(scatter.addmm_(torch.from_numpy(means * counts[:, None]).T, torch.from_numpy(means), alpha=-1.0))


@dataclass(frozen=True, eq=False, repr=False)
class RmdsPlus(MdsPlus):
    """MDS++ minus the same with one Gaussian over all images: RMDS++ (Ren et al., 2021; Mueller & Hein, 2025)."""

    def fit(self, train: Training) -> RelativeClusters:
        """The whitened class means and the background."""
        center, within, means = self._solved(train)
        return RelativeClusters(center, within, means, self._all(train, center))


def whitened(scatter: Array, free: int) -> Array:
    """[M, M] A with A A' = the inverse of the shrunk covariance; `free` degrees of freedom made the scatter.

    The scatter is used up: its memory serves the covariance.
    """
    covariance = torch.from_numpy(scatter).div_(free)
    width = len(covariance)
    trace, square = float(covariance.trace()), float(torch.linalg.vector_norm(covariance)) ** 2
    if not trace > (1e-12 if exact(free, width) else 1e-6):  # of directions in float32, rounding leaves 1e-7
        raise InputError("the directions of the training features are all the same: they have no covariance")
    apart = (free + 1 - 2 / width) * (square - trace**2 / width)
    share = 1.0 if apart <= 0 else min(1.0, ((1 - 2 / width) * square + trace**2) / apart)
    covariance.mul_(1 - share).diagonal().add_(share * trace / width)
    upper = torch.linalg.cholesky(covariance).numpy().T
    with torchs_threads():
        inverse: Array = dtrtri(upper, overwrite_c=True)[0]
    return inverse
