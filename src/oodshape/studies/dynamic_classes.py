"""Dynamic class indices: theta when the class of the max logit may change with the features' shape."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from oodshape.features import kernels
from oodshape.features.features import Features
from oodshape.images.identity import smallest
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.shapes.pieces import PiecewiseConstant
from oodshape.methods.slots import Shape
from oodshape.methods.training import Training


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
        total = np.zeros(optfs.k + 2)
        for _, raw in train[rows].chunks():
            z = raw.float().cpu()
            shaped = z if theta is None else theta(z)
            classes = train.head.logits(shaped).argmax(dim=1)
            total += kernels.interval_impacts(z, classes, weight, shape.grid, optfs.k + 2)
        theta = replace(shape, theta=on_the_way.solve(total[1:-1] / len(rows)))
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
