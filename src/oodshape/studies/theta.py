"""Fit theta of OptFS in other ways: with OOD data, and with classes that may change."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.features import kernels
from oodshape.features.features import Features
from oodshape.images.identity import smallest
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.methods.slots import Shape
from oodshape.methods.training_set import Training

Array = NDArray[Any]


def fit_with_ood(train: Features, ood: Features, optfs: OptFS = OptFS()) -> PiecewiseConstant:
    """Fit the shaping function that separates ID from these OOD data best; intervals and norm are those of OptFS.

    theta ~ E[I_ID] - E[I_OOD] (the paper's Eq. 8), from statistics alone.
    """
    ours = optfs.fit(Training.of(train))
    return replace(ours, theta=optfs.solve(train.stats.impact(ours.edges) - ood.stats.impact(ours.edges)))


def interval_columns(edges: Array) -> dict[str, Array]:
    """Return the limits of the intervals as the columns left and right of a table."""
    return {"left": edges[:-1].astype(np.float64), "right": edges[1:].astype(np.float64)}


def cosine(a: Array, b: Array) -> float:
    """Return the cosine of the angle between two vectors."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def fit_dynamic(
    train: Features, *, optfs: OptFS = OptFS(), iterations: int = 10, samples: int = 10_000, seed: int = 0
) -> PiecewiseConstant:
    """Fit the shaping function by alternating between theta and the class of each image.

    Every iteration draws min(samples, n) images, predicts their classes from the features shaped with the current theta
    (bias included; unshaped in the first iteration), and solves for theta. The edges are those of the whole training
    set. During the iterations theta has the norm sqrt(K), at the end that of `optfs`.
    """
    shape = optfs.fit(Training.of(train))
    assert shape.grid is not None
    theta: PiecewiseConstant | None = None
    weight = train.head.weight.cpu()
    unscaled = replace(optfs, norm=None)
    for iteration in range(iterations):
        rows = smallest(train.identities, samples, seed, f"dynamic {iteration}")
        total = np.zeros((optfs.k + 2, 2))
        for _, raw in train[rows].chunks():
            z = raw.float().cpu()
            shaped = z if theta is None else theta(z)
            classes = train.head.logits(shaped).argmax(dim=1)
            total += kernels.interval_sums(z, classes, weight, shape.grid, optfs.k + 2)
        theta = replace(shape, theta=unscaled.solve(total[1:-1, 0] / len(rows)))
    return shape if theta is None else replace(theta, theta=optfs.solve(theta.theta))


def measure_changed(features: Features, shape: Shape, *, samples: int = 10_000, seed: int = 0) -> dict[str, float]:
    """Measure the ratio r of images whose argmax changes with the shape, over n = min(samples, N) of them.

    without_bias is the paper's formula (argmax w z against argmax w f(z)), with_bias that of the authors' code.
    """
    rows = smallest(features.identities, samples, seed, "changed")
    changed = torch.zeros(2, dtype=torch.int64)
    for _, raw in features[rows].chunks():
        z = raw.float()
        before, after = _classes(features, z), _classes(features, shape(z))
        changed += (before != after).sum(dim=1).cpu()
    without, with_bias = (changed.double() / len(rows)).tolist()
    return {"without_bias": without, "with_bias": with_bias, "n": len(rows)}


def _classes(features: Features, z: Tensor) -> Tensor:
    """Return [2, N]: the class without and with the bias."""
    logits = z @ features.head.weight.T
    return torch.stack([logits.argmax(dim=1), (logits + features.head.bias).argmax(dim=1)])
