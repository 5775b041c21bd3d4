"""Fit theta of OptFS in other ways: with OOD data, and with classes that may change."""

from __future__ import annotations

import warnings
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from oodshape.features import kernels
from oodshape.features.features import Features
from oodshape.images.identity import smallest
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.methods.slots import Shape
from oodshape.methods.training_set import Training

Array = NDArray[Any]
Objective = Literal["mean-gap", "authors-code"]
MOST_ID = 50_000  # ID samples of the regression, as in the authors' code


def fit_with_ood(
    train: Features, ood: Features, *, objective: Objective = "mean-gap", optfs: OptFS = OptFS(), seed: int = 0
) -> PiecewiseConstant:
    """Fit the shaping function that separates ID from these OOD data best; intervals and norm are those of OptFS.

    mean-gap: theta ~ E[I_ID] - E[I_OOD] (the paper's Eq. 8), from statistics alone. authors-code: the logistic
    regression of scikit-learn with its default settings, as in the paper's published code: summed losses, classes of
    unequal size, unscaled impacts, and the penalty |theta|^2 / 2; on at most 50,000 ID samples, drawn with the seed.
    """
    ours = optfs.fit(Training.of(train))
    if objective == "mean-gap":
        direction = train.stats.impact(ours.edges) - ood.stats.impact(ours.edges)
    else:
        rows = smallest(train.identities, MOST_ID, seed, "with OOD")
        inside, outside = compute_impacts(train[rows], ours.edges), compute_impacts(ood, ours.edges)
        direction = _regression(inside, outside)
    return replace(ours, theta=optfs.solve(direction))


def interval_columns(edges: Array) -> dict[str, Array]:
    """Return the limits of the intervals as the columns left and right of a table."""
    return {"left": edges[:-1].astype(np.float64), "right": edges[1:].astype(np.float64)}


def cosine(a: Array, b: Array) -> float:
    """Return the cosine of the angle between two vectors."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))


def compute_impacts(features: Features, edges: Array) -> Array:
    """Return [N, K] float64: the interval-specific feature impacts I(z) of each image (the paper's ISFI vectors)."""
    k = len(edges) - 1
    limits, weight = np.asarray(edges, np.float32), features.head.weight.cpu().numpy()
    parts = []
    for first, raw in features.chunks():
        z = raw.float().cpu().numpy()
        classes = features.predictions[first : first + len(z)].cpu().numpy()
        cell = np.searchsorted(limits, z.ravel(), side="right").reshape(z.shape)  # 0 and k + 1: outside the intervals
        place = cell + np.arange(len(z))[:, None] * (k + 2)
        impact = z.astype(np.float64) * weight[classes]
        sums = np.bincount(place.ravel(), impact.ravel(), len(z) * (k + 2))
        parts.append(sums.reshape(len(z), k + 2)[:, 1:-1])
    return np.concatenate(parts)


def _regression(inside: Array, outside: Array) -> Array:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classes = np.repeat([1, 0], [len(inside), len(outside)])
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # the authors' code stops after 100 steps too
        fitted = LogisticRegression(random_state=42).fit(np.concatenate([inside, outside]), classes)
    return np.asarray(fitted.coef_[0])


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
