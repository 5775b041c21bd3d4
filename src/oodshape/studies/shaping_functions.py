"""Profile shaping functions by feature value: theta(z) of every method, and the weights of the predicted class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.features.feature_stats import FeatureStats
from oodshape.features.features import Features
from oodshape.methods.base import Shape
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.training import Training
from oodshape.studies.network import Network
from oodshape.studies.theta import fit_with_ood, interval_columns

if TYPE_CHECKING:
    from pandas import DataFrame

Array = NDArray[Any]
BY_VALUE = ("react", "bfact", "vra-p")  # theta is a function of the feature value
BY_VECTOR = ("ash-p", "ash-b", "ash-s", "ash-rand")  # theta depends on the other features too


def profile_shapes(network: Network) -> DataFrame:
    """Return curve, left, right, theta, std, count: theta over OptFS's intervals, for the paper's eight panels.

    The curves are ReAct, BFAct and VRA-P (theta at the middle of the interval), OptFS without and with OOD data, and
    ASH: mean and standard deviation of f(z) / z over the values z != 0 of ID and OOD features in the interval; count is
    their number. A method that cannot be fitted has no rows.
    """
    from pandas import DataFrame, concat

    train, methods, sets = network.train, network.methods, (network.id_test, network.ood[network.real])
    training = Training.of(train)
    ours = OptFS().fit(training)
    edges = ours.edges
    count, _, _ = profile_intervals(ours, sets, edges)
    middle = torch.tensor((edges[:-1].astype(np.float64) + edges[1:]) / 2).float()[None]
    curves: dict[str, tuple[Array, Array | float]] = {
        "optfs-v": (ours.theta, np.nan),
        "optfs with OOD": (fit_with_ood(train, sets[1]).theta, np.nan),
    }
    for name in BY_VALUE:
        try:
            shape = methods[name].shape.fit(training)
        except InputError:  # BFAct needs a positive quantile
            continue
        curves[name] = (shape.scale(middle, torch.ones_like(middle))[0].numpy(), np.nan)
    for name in BY_VECTOR:
        _, mean, std = profile_intervals(methods[name].shape.fit(training), sets, edges)
        curves[name] = (mean, std)
    columns = {**interval_columns(edges), "count": count}
    return concat(
        [
            DataFrame({"curve": name, **columns, "theta": theta.astype(np.float64), "std": std})
            for name, (theta, std) in curves.items()
        ],
        ignore_index=True,
    )


def profile_intervals(shape: Shape, sets: Iterable[Features], edges: Array) -> tuple[Array, Array, Array]:
    """Return [K] count, mean and standard deviation of f(z) / z over the values z != 0 in each interval."""
    limits, sums = np.asarray(edges, np.float32), np.zeros((3, len(edges) + 1))
    for features in sets:
        for _, raw in features.chunks():
            z = raw.float().cpu()
            values, shaped = (each.numpy().ravel().astype(np.float64) for each in (z, shape(z)))
            keep = values != 0
            cell = np.searchsorted(limits, z.numpy().ravel()[keep], side="right")
            ratio = shaped[keep] / values[keep]
            sums += [np.bincount(cell, ratio**power, len(edges) + 1) for power in range(3)]
    count, total, squares = sums[:, 1:-1]
    mean, std = mean_and_std(count, total, squares)
    return count.astype(np.int64), mean, std


def mean_and_std(count: Array, total: Array, squares: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation from sums of values and of squares; NaN if there are no values."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
        return mean, np.sqrt(np.maximum(squares / count - mean**2, 0.0))


def profile_weights(network: Network, optfs: OptFS = OptFS()) -> DataFrame:
    """Return set, left, right, count, mean, std: the weights of the predicted class by interval of the feature value.

    The intervals are those of OptFS on the training set; the sets are the ID test set and the real OOD set.
    """
    from pandas import DataFrame, concat

    edges = optfs.fit(Training.of(network.train)).edges
    parts = []
    for name, features in {"ID": network.id_test, f"OOD ({network.real})": network.ood[network.real]}.items():
        stats = FeatureStats.of(features, weights=True)
        sums = [stats.over(column, edges) for column in ("counts", "weights", "weight_squares")]
        mean, std = mean_and_std(*sums)
        parts.append(DataFrame({"set": name, **interval_columns(edges), "count": sums[0], "mean": mean, "std": std}))
    return concat(parts, ignore_index=True)
