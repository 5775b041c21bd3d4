"""Scores fitted as OpenOOD v1.5 fits them: banks of a share of all training images, means over all of them.

The fitted scores are those of the other files; only what they are fitted on differs.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Fraction
from oodshape.features.kernels import normalise_rows
from oodshape.features.moments import Statistic, around_mean
from oodshape.images.identity import smallest
from oodshape.methods.scores.mahalanobis import Clusters, Mds, RelativeClusters
from oodshape.methods.scores.nearest_neighbours import Guide, NeighbourDistance, Neighbours
from oodshape.methods.scores.subspace import Vim, VirtualLogit
from oodshape.methods.training_set import CHECKED, Classes, Training, uses_labels

Share = Annotated[float, Fraction(one=True)]  # of the training images


def _make_bank(train: Training, share: float) -> Tensor:
    """[B, M] float32: a share of the training images, chosen by which images they are; at least one."""
    features = train.features
    if share < 1:
        features = features[smallest(features.identities, max(round(share * len(features)), 1), 0, "bank")]
    bank = torch.empty(len(features), features.width, dtype=torch.float32)
    for first, raw in features.chunks():
        bank[first : first + len(raw)] = raw.float()
    return bank


class _OfShare(Neighbours):
    needs = frozenset[Statistic]()  # it goes over the features

    share: Share = 1.0


class ShareKnn(_OfShare):
    """Minus the distance to the k-th nearest of a share of all training images, however many these are."""

    k: Annotated[int, AtLeast(1)] = 50

    def fit(self, train: Training) -> NeighbourDistance:
        return NeighbourDistance(*around_mean(normalise_rows(_make_bank(train, self.share)).numpy()), self.k)


class ShareNnGuide(_OfShare):
    """NNGuide with a bank of a share of all training images, however many these are."""

    k: Annotated[int, AtLeast(1)] = 100
    share: Share = 0.01

    def fit(self, train: Training) -> Guide:
        bank = _make_bank(train, self.share)
        energies = torch.logsumexp(train.head.to("cpu").logits(bank), dim=1)
        return Guide(*around_mean(normalise_rows(bank).numpy()), self.k, energies.numpy())


class WholeVim(Vim):
    """ViM with alpha over all training images, and exactly the dimensions that are asked for."""

    dimensions: Annotated[int, AtLeast(1)] | None = 256

    def fit(self, train: Training) -> VirtualLogit:
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


Array = NDArray[Any]


class EmpiricalMds(Mds):
    """-min_c (z - mu_c)' S^-1 (z - mu_c) with S the covariance itself, over n images, pseudo-inverted.

    Two passes over the features in float64: differences are taken before they are squared, so that small variances,
    which the inverse makes large, are not lost.
    """

    classes: Classes = "labels"

    @property
    def needs(self) -> frozenset[Statistic]:
        """What says whether labels are in the network's order."""
        return frozenset() if self.classes == "predicted" else CHECKED

    def fit(self, train: Training) -> Clusters:
        return _fit_gaussians(train, self.classes)[0]


class EmpiricalRmds(EmpiricalMds):
    """EmpiricalMds minus the same with one Gaussian over all images."""

    def fit(self, train: Training) -> RelativeClusters:
        fitted, around = _fit_gaussians(train, self.classes)
        return RelativeClusters(fitted.center, fitted.whitening, fitted.means, around, unit=False)


def _fit_gaussians(train: Training, classes: Classes) -> tuple[Clusters, Array]:
    """(The classes that have images by the covariance within them, [M, M] whitening of images around their mean)."""
    features = train.features
    labelled = classes != "predicted" and uses_labels(train.moments(CHECKED), classes)
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
    whitening = _whitening(within / n)
    clusters = Clusters(center.numpy(), whitening, (means[counts > 0] - center).numpy() @ whitening, unit=False)
    return clusters, _whitening(around / n)


def _whitening(covariance: Tensor) -> Array:
    """[M, M] A with A A' = the pseudo-inverse of the covariance; directions without variance become 0."""
    values, vectors = torch.linalg.eigh(covariance)
    least = len(values) * torch.finfo(values.dtype).eps * values.abs().max()  # as scipy.linalg.pinvh cuts
    scale = torch.where(values > least, values.clamp_min(least).rsqrt(), 0.0)
    return np.asarray((vectors * scale).numpy())
