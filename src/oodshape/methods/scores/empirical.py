"""MDS and RMDS as OpenOOD v1.5 fits them: by label, with covariances as they are instead of shrunk ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.features.parts import Part
from oodshape.methods.scores.labelled import CHECKED, Classes, by_label
from oodshape.methods.scores.mahalanobis import Clusters, Mds, RelativeClusters
from oodshape.methods.training import Training

Array = NDArray[Any]


class _Spread(NamedTuple):
    """Where the classes lie, and how images lie around them and around the mean of all."""

    center: Array  # [M]
    means: Array  # [K, M]: of the classes that have images
    within: Array  # [M, M]: whitening of images around the means of their classes
    around: Array  # [M, M]: whitening of images around the mean of all


@dataclass(frozen=True, eq=False, repr=False)
class EmpiricalMds(Mds):
    """-min_c (z - mu_c)' S^-1 (z - mu_c) with S the covariance itself, over n images, pseudo-inverted.

    Two passes over the features in float64: differences are taken before they are squared, so that small variances,
    which the inverse makes large, are not lost.
    """

    classes: Classes = "labels"

    @property
    def needs(self) -> frozenset[Part]:
        """What says whether labels are in the network's order."""
        return frozenset() if self.classes == "predicted" else CHECKED

    def fit(self, train: Training) -> Clusters:
        """The whitened class means."""
        found = _spread(train, self.classes)
        return Clusters(found.center, found.within, (found.means - found.center) @ found.within, unit=False)


@dataclass(frozen=True, eq=False, repr=False)
class EmpiricalRmds(EmpiricalMds):
    """EmpiricalMds minus the same with one Gaussian over all images."""

    def fit(self, train: Training) -> RelativeClusters:
        """The whitened class means and the background."""
        found = _spread(train, self.classes)
        means = (found.means - found.center) @ found.within
        return RelativeClusters(found.center, found.within, means, found.around, unit=False)


def _spread(train: Training, classes: Classes) -> _Spread:
    features = train.features
    labelled = classes != "predicted" and by_label(train.moments(CHECKED), classes)
    which = features.labels if labelled and features.labels is not None else features.predictions
    which = which.cpu()
    n, width = len(features), features.width
    sums = torch.zeros(train.head.classes, width, dtype=torch.float64)
    counts = torch.bincount(which, minlength=len(sums)).double()
    for first, raw in features.chunks():
        sums.index_add_(0, which[first : first + len(raw)], raw.double())
    means, center = sums / counts.clamp_min(1)[:, None], sums.sum(dim=0) / n
    within, around = (torch.zeros(width, width, dtype=torch.float64) for _ in range(2))
    for first, raw in features.chunks():
        z = raw.double()
        apart = z - means[which[first : first + len(raw)]]
        within.addmm_(apart.T, apart)
        apart = z - center
        around.addmm_(apart.T, apart)
    return _Spread(center.numpy(), means[counts > 0].numpy(), _whitening(within / n), _whitening(around / n))


def _whitening(covariance: Tensor) -> Array:
    """[M, M] A with A A' = the pseudo-inverse of the covariance; directions without variance become 0."""
    values, vectors = torch.linalg.eigh(covariance)
    least = len(values) * torch.finfo(values.dtype).eps * values.abs().max()  # as scipy.linalg.pinvh cuts
    scale = torch.where(values > least, values.clamp_min(least).rsqrt(), 0.0)
    return np.asarray((vectors * scale).numpy())
