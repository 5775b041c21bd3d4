"""Fit theta of OptFS in other ways: with OOD data (closed form and losses), and with classes that may change."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features import kernels
from oodshape.features.features import Features
from oodshape.images.identity import smallest
from oodshape.methods.base import Shape
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.methods.training import Training

Array = NDArray[Any]
Objective = Literal["mean-gap", "logistic", "hinge", "authors-code"]
OBJECTIVES: tuple[Objective, ...] = ("mean-gap", "logistic", "hinge", "authors-code")
MOST_ID = 50_000  # ID samples in a loss, as in the authors' code
SMOOTHING = (1.0, 0.1, 0.01, 0.001)  # widths of the rounded corner of the hinge; each starts from the previous optimum


def fit_with_ood(
    train: Features,
    ood: Features,
    *,
    objective: Objective = "mean-gap",
    optfs: OptFS = OptFS(),
    penalty: float = 0.01,
    seed: int = 0,
) -> PiecewiseConstant:
    """Fit the shaping function that separates ID from these OOD data best; intervals and norm are those of OptFS.

    mean-gap: theta ~ E[I_ID] - E[I_OOD] (the paper's Eq. 8), from statistics alone. logistic, hinge: theta minimises
    mean loss(theta . I_ID + c) / 2 + mean loss(-theta . I_OOD - c) / 2 + penalty |theta|^2 / 2 over theta and c, each
    impact divided by |E[I_ID]| so that the penalty means the same on any network; on at most 50,000 ID samples, drawn
    with the seed. authors-code: the logistic regression of scikit-learn with its default settings, as in the paper's
    published code: summed losses, classes of unequal size, unscaled impacts, and the penalty |theta|^2 / 2.
    """
    if objective not in OBJECTIVES:
        raise InputError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    ours = optfs.fit(Training.of(train))
    if objective == "mean-gap":
        direction = train.stats.impact(ours.edges) - ood.stats.impact(ours.edges)
    else:
        rows = smallest(train.identities, MOST_ID, seed, "with OOD")
        inside, outside = compute_impacts(train[rows], ours.edges), compute_impacts(ood, ours.edges)
        direction = _LOSSES[objective](inside, outside, penalty)
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


def _logistic_loss(margin: Array) -> tuple[Array, Array]:
    """Return log(1 + exp(-m)) and its derivative."""
    return np.logaddexp(0.0, -margin), -0.5 * (1.0 - np.tanh(0.5 * margin))


def _smooth_hinge(margin: Array, width: float) -> tuple[Array, Array]:
    """Return max(0, 1 - m) with its corner rounded over `width` (at most width / 8 above), and the derivative."""
    short = np.clip((1.0 - margin) / width + 0.5, 0.0, 1.0)
    return np.where(short < 1.0, 0.5 * width * short**2, 1.0 - margin), -short


def _minimize(inside: Array, outside: Array, penalty: float, losses: list[Callable[[Array], Any]]) -> Array:
    """Return [K]: the theta that minimises the mean loss, each loss in turn starting from the previous optimum."""
    from scipy.optimize import minimize

    if not penalty > 0:
        raise InputError(f"penalty must be positive, got {penalty:g}")
    length = float(np.linalg.norm(inside.mean(axis=0))) or 1.0
    signed = np.concatenate([inside, -outside]) / length
    sign = np.repeat([1.0, -1.0], [len(inside), len(outside)])
    share = np.repeat([0.5 / len(inside), 0.5 / len(outside)], [len(inside), len(outside)])

    def value(x: Array, loss: Callable[[Array], Any]) -> tuple[float, Array]:
        losses, slopes = loss(signed @ x[:-1] + sign * x[-1])
        slopes = share * slopes
        gradient = np.append(signed.T @ slopes + penalty * x[:-1], sign @ slopes)
        return float(share @ losses + 0.5 * penalty * x[:-1] @ x[:-1]), gradient

    x = np.zeros(inside.shape[1] + 1)
    options = {"maxiter": 2000, "ftol": 1e-12, "gtol": 1e-8}
    with threadpool_limits(1, "blas"):  # products this small take longer on many threads, and sums depend on them
        for loss in losses:
            x = minimize(value, x, args=(loss,), jac=True, method="L-BFGS-B", options=options).x
    return np.asarray(x[:-1])


def _regression(inside: Array, outside: Array, penalty: float) -> Array:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classes = np.repeat([1, 0], [len(inside), len(outside)])
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # the authors' code stops after 100 steps too
        fitted = LogisticRegression(random_state=42).fit(np.concatenate([inside, outside]), classes)
    return np.asarray(fitted.coef_[0])


_LOSSES: dict[str, Callable[[Array, Array, float], Array]] = {
    "logistic": partial(_minimize, losses=[_logistic_loss]),
    "hinge": partial(_minimize, losses=[partial(_smooth_hinge, width=width) for width in SMOOTHING]),
    "authors-code": _regression,
}


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


@dataclass(frozen=True)
class ChangedRatio:
    """The fraction of images whose class changes with the shape: by the paper's formula, and by the authors' code."""

    without_bias: float  # argmax w z against argmax w f(z)
    with_bias: float
    n: int


def measure_changed(features: Features, shape: Shape, *, samples: int = 10_000, seed: int = 0) -> ChangedRatio:
    """Measure the ratio r of changed argmax over min(samples, n) images drawn with the seed, without and with bias."""
    rows = smallest(features.identities, samples, seed, "changed")
    changed = torch.zeros(2, dtype=torch.int64)
    for _, raw in features[rows].chunks():
        z = raw.float()
        before, after = _classes(features, z), _classes(features, shape(z))
        changed += (before != after).sum(dim=1).cpu()
    without, with_bias = (changed.double() / len(rows)).tolist()
    return ChangedRatio(without, with_bias, len(rows))


def _classes(features: Features, z: Tensor) -> Tensor:
    """Return [2, N]: the class without and with the bias."""
    logits = z @ features.head.weight.T
    return torch.stack([logits.argmax(dim=1), (logits + features.head.bias).argmax(dim=1)])
