"""Other solutions for the theta of OptFS: with OOD data (closed form and losses), and with classes that may change."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features import kernels
from oodshape.features.feature_stats import FeatureStats
from oodshape.features.features import Features
from oodshape.images.identity import smallest
from oodshape.methods.base import Shape
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.methods.training import Training

Array = NDArray[Any]
Objective = Literal["mean-gap", "logistic", "hinge", "authors-code"]
OBJECTIVES: tuple[Objective, ...] = ("mean-gap", "logistic", "hinge", "authors-code")
MOST_ID = 50_000  # ID samples in a loss: what the authors' code takes
SMOOTHING = (1.0, 0.1, 0.01, 0.001)  # of the hinge's corner, each the start of the next


def with_ood(
    train: Features | FeatureStats,
    ood: Features | FeatureStats,
    *,
    objective: Objective = "mean-gap",
    optfs: OptFS = OptFS(),
    penalty: float = 0.01,
    seed: int = 0,
) -> PiecewiseConstant:
    """The shaping function that separates ID from these OOD data best; intervals and norm are those of OptFS.

    mean-gap: theta ~ E[I_ID] - E[I_OOD] (the paper's Eq. 8), from statistics alone. logistic, hinge: theta
    minimises mean loss(theta . I_ID + c) / 2 + mean loss(-theta . I_OOD - c) / 2 + penalty |theta|^2 / 2 over
    theta and c, each impact divided by |E[I_ID]| so that the penalty means the same on any network; on at most
    50,000 ID samples, drawn with the seed. authors-code: the logistic regression of scikit-learn with its own
    settings, as the paper's published code has it: summed losses, classes of unequal size as they are, impacts as
    they are, and the penalty |theta|^2 / 2. All three need the features.
    """
    if objective not in OBJECTIVES:
        raise InputError(f"objective must be one of {', '.join(OBJECTIVES)}, got {objective!r}")
    ours = optfs.fit(Training.of(train))
    if objective in _LOSSES:
        if not (isinstance(train, Features) and isinstance(ood, Features)):
            raise InputError(f"the {objective} objective needs the features, statistics are not enough")
        rows = smallest(train.identities, MOST_ID, seed, "with OOD")
        inside, outside = impact_vectors(train[rows], ours.edges), impact_vectors(ood, ours.edges)
        direction = _LOSSES[objective](inside, outside, penalty)
    else:
        outer = ood.stats if isinstance(ood, Features) else ood
        inner = train.stats if isinstance(train, Features) else train
        direction = inner.impact(ours.edges) - outer.impact(ours.edges)
    return replace(ours, theta=optfs.solve(direction))


def impact_vectors(features: Features, edges: Array) -> Array:
    """[N, K] float64: the interval-specific feature impacts I(z) of each image (the paper's ISFI vectors)."""
    k = len(edges) - 1
    limits, weight = np.asarray(edges, np.float32), features.head.weight.cpu().numpy()
    parts = []
    for first, raw in features.chunks():
        z = raw.float().cpu().numpy()
        classes = features.predictions[first : first + len(z)].cpu().numpy()
        cell = np.searchsorted(limits, z.ravel(), side="right").reshape(z.shape)  # 0 and k + 1 lie outside
        place = cell + np.arange(len(z))[:, None] * (k + 2)
        impact = z.astype(np.float64) * weight[classes]
        sums = np.bincount(place.ravel(), impact.ravel(), len(z) * (k + 2))
        parts.append(sums.reshape(len(z), k + 2)[:, 1:-1])
    return np.concatenate(parts)


def _logistic_loss(margin: Array) -> tuple[Array, Array]:
    """log(1 + exp(-m)) and its derivative."""
    return np.logaddexp(0.0, -margin), -0.5 * (1.0 - np.tanh(0.5 * margin))


def _smooth_hinge(margin: Array, width: float) -> tuple[Array, Array]:
    """max(0, 1 - m) with its corner rounded over `width`: at most width / 8 above it; and its derivative."""
    short = np.clip((1.0 - margin) / width + 0.5, 0.0, 1.0)
    return np.where(short < 1.0, 0.5 * width * short**2, 1.0 - margin), -short


def _minimum(inside: Array, outside: Array, penalty: float, losses: list[Callable[[Array], Any]]) -> Array:
    """[K]: the theta that minimises the mean losses, each loss in turn from where the last one ended."""
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


def _logistic(inside: Array, outside: Array, penalty: float) -> Array:
    return _minimum(inside, outside, penalty, [_logistic_loss])


def _hinge(inside: Array, outside: Array, penalty: float) -> Array:
    def rounded(width: float) -> Callable[[Array], Any]:
        return lambda margin: _smooth_hinge(margin, width)

    return _minimum(inside, outside, penalty, [rounded(width) for width in SMOOTHING])


def _regression(inside: Array, outside: Array, penalty: float) -> Array:
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    classes = np.repeat([1, 0], [len(inside), len(outside)])
    with warnings.catch_warnings(), threadpool_limits(1, "blas"):
        warnings.simplefilter("ignore", ConvergenceWarning)  # theirs stops after 100 steps too
        fitted = LogisticRegression(random_state=42).fit(np.concatenate([inside, outside]), classes)
    return np.asarray(fitted.coef_[0])


_LOSSES = {"logistic": _logistic, "hinge": _hinge, "authors-code": _regression}


def dynamic(
    train: Features, *, optfs: OptFS = OptFS(), iterations: int = 10, samples: int = 10_000, seed: int = 0
) -> PiecewiseConstant:
    """The shaping function after alternating between theta and the class of each image.

    Every iteration draws min(samples, n) images anew, takes the class that the features reshaped with the theta
    so far give (bias included; the first time, the network's own class), and solves for theta. The edges are
    those of the whole training set. On the way theta has the norm sqrt(K), in the end that of `optfs`.
    """
    shape = optfs.fit(Training.of(train))
    assert shape.grid is not None
    theta: PiecewiseConstant | None = None
    weight = train.head.weight.cpu()
    on_the_way = replace(optfs, norm=None)
    for iteration in range(iterations):
        rows = smallest(train.identities, samples, seed, f"dynamic {iteration}")
        total = np.zeros((optfs.k + 2, 2))
        for _, raw in train[rows].chunks():
            z = raw.float().cpu()
            shaped = z if theta is None else theta(z)
            classes = train.head.logits(shaped).argmax(dim=1)
            total += kernels.interval_sums(z, classes, weight, shape.grid, optfs.k + 2)
        theta = replace(shape, theta=on_the_way.solve(total[1:-1, 0] / len(rows)))
    return shape if theta is None else replace(theta, theta=optfs.solve(theta.theta))


@dataclass(frozen=True)
class ChangedRatio:
    """The share of images whose class changes with the shape: by the paper's formula, and by the authors' code."""

    without_bias: float  # argmax w z against argmax w f(z)
    with_bias: float
    n: int


def changed_ratio(features: Features, shape: Shape, *, samples: int = 10_000, seed: int = 0) -> ChangedRatio:
    """The ratio r of changed argmax over min(samples, n) images drawn with the seed, both ways."""
    rows = smallest(features.identities, samples, seed, "changed")
    changed = torch.zeros(2, dtype=torch.int64)
    for _, raw in features[rows].chunks():
        z = raw.float()
        before, after = _classes(features, z), _classes(features, shape(z))
        changed += (before != after).sum(dim=1).cpu()
    without, with_bias = (changed.double() / len(rows)).tolist()
    return ChangedRatio(without, with_bias, len(rows))


def _classes(features: Features, z: Tensor) -> Tensor:
    """[2, N]: the class without and with the bias."""
    logits = z @ features.head.weight.T
    return torch.stack([logits.argmax(dim=1), (logits + features.head.bias).argmax(dim=1)])
