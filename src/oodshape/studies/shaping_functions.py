"""What happens at each feature value: theta(z) of every shaping method, and the weights that meet it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.features.feature_stats import FeatureStats
from oodshape.features.features import Features
from oodshape.methods.base import Shape
from oodshape.methods.detector import Method
from oodshape.methods.registry import METHODS
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.training import Training
from oodshape.studies.theta import with_ood

if TYPE_CHECKING:
    from pandas import DataFrame

Array = NDArray[Any]
BY_VALUE = ("react", "bfact", "vra-p")  # theta is a function of the feature value
BY_VECTOR = ("ash-p", "ash-b", "ash-s", "ash-rand")  # theta depends on the other features too
WITH, WITHOUT = "optfs with OOD", "optfs-v"


def shaping_profiles(
    train: Features,
    inside: Features,
    ood: Features,
    methods: Mapping[str, Method] = METHODS,
    optfs: OptFS = OptFS(),
) -> DataFrame:
    """curve, left, right, theta, std, count: theta over OptFS's intervals, for the paper's eight panels.

    The curves are ReAct, BFAct and VRA-P (theta at the middle of the interval), OptFS without and with the OOD
    data, and ASH: mean and standard deviation of f(z) / z over the values of ID and OOD features together that
    lie in the interval, z = 0 left out. A method that cannot be fitted here has no rows. count is the number of
    those values.
    """
    from pandas import DataFrame, concat

    ours = optfs.fit(Training.of(train))
    edges, pooled = ours.edges, (inside, ood)
    count = per_interval(ours, pooled, edges)[0]
    middle = torch.tensor((edges[:-1].astype(np.float64) + edges[1:]) / 2).float()[None]
    curves: dict[str, tuple[Array, Array | None]] = {
        WITHOUT: (ours.theta, None),
        WITH: (with_ood(train, ood, optfs=optfs).theta, None),
    }
    for name in BY_VALUE:
        try:
            shape = methods[name].shape.fit(Training.of(train))
        except InputError:  # BFAct needs a positive quantile
            continue
        curves[name] = (shape.scale(middle, torch.ones_like(middle))[0].numpy(), None)
    for name in BY_VECTOR:
        _, mean, std = per_interval(methods[name].shape.fit(Training.of(train)), pooled, edges)
        curves[name] = (mean, std)
    limits = {"left": edges[:-1].astype(np.float64), "right": edges[1:].astype(np.float64)}
    parts = [
        DataFrame({"curve": name, **limits, "theta": theta.astype(np.float64), "std": std, "count": count})
        for name, (theta, std) in curves.items()
    ]
    return concat([part.astype({"std": float}) for part in parts], ignore_index=True)


def per_interval(shape: Shape, sets: Iterable[Features], edges: Array) -> tuple[Array, Array, Array]:
    """[K] count, mean and standard deviation of f(z) / z over the values z != 0 in each interval; NaN if none."""
    k, sets = len(edges) - 1, tuple(sets)
    limits = np.asarray(edges, np.float32)

    def summed(power: Any) -> Array:
        total = np.zeros(k + 2)
        for features in sets:
            for _, raw in features.chunks():
                z = raw.float().cpu()
                cell = np.searchsorted(limits, z.numpy().ravel(), side="right")
                ratio = shape(z).numpy().ravel().astype(np.float64)
                keep = z.numpy().ravel() != 0
                ratio = ratio[keep] / z.numpy().ravel()[keep].astype(np.float64)
                total += np.bincount(cell[keep], power(ratio, cell[keep]), k + 2)
        return total

    count = summed(lambda ratio, cell: np.ones_like(ratio))
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = summed(lambda ratio, cell: ratio) / count
        variance = summed(lambda ratio, cell: (ratio - mean[cell]) ** 2) / count
    return count[1:-1].astype(np.int64), mean[1:-1], np.sqrt(variance)[1:-1]


def weights_by_value(train: Features, sets: Mapping[str, Features], optfs: OptFS = OptFS()) -> DataFrame:
    """set, left, right, count, mean, std: the weights w_max that meet the feature values of each interval.

    The intervals are OptFS's on the training set; sets maps names such as ID and OOD to features.
    """
    from pandas import DataFrame, concat

    edges = optfs.fit(Training.of(train)).edges
    parts = []
    for name, features in sets.items():
        stats = FeatureStats.of(features, weights=True)
        count, total, squares = (stats.over(column, edges) for column in ("counts", "weights", "weight_squares"))
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / count
            std = np.sqrt(np.maximum(squares / count - mean**2, 0.0))
        limits = {"left": edges[:-1].astype(np.float64), "right": edges[1:].astype(np.float64)}
        parts.append(DataFrame({"set": name, **limits, "count": count, "mean": mean, "std": std}))
    return concat(parts, ignore_index=True)
