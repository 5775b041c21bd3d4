"""Profile shaping functions by feature value: theta(z) of every method, and the weights of the predicted class."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from pandas import DataFrame, concat

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.slots import Shape
from oodshape.methods.training_set import Training
from oodshape.studies.load_networks import StudyNetwork
from oodshape.studies.theta import fit_with_ood, interval_columns

Array = NDArray[Any]
BY_VALUE = ("react", "bfact", "vra-p")  # theta is a function of the feature value
BY_VECTOR = ("ash-p", "ash-b", "ash-s", "ash-rand")  # theta depends on the other features too


def profile_shapes(network: StudyNetwork) -> DataFrame:
    """Return curve, left, right, theta, std, count: theta over OptFS's intervals, for the paper's eight panels.

    The curves are ReAct, BFAct and VRA-P (theta at the middle of the interval), OptFS without and with OOD data, and
    ASH: mean and standard deviation of f(z) / z over the values z != 0 of ID and OOD features in the interval; count is
    their number. A method that cannot be fitted has no rows.
    """
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
    frames = [
        DataFrame({"curve": name, **columns, "theta": theta.astype(np.float64), "std": std})
        for name, (theta, std) in curves.items()
    ]
    return concat(frames, ignore_index=True)


def profile_intervals(shape: Shape, sets: Iterable[Features], edges: Array) -> tuple[Array, Array, Array]:
    """Return [K] count, mean and standard deviation of f(z) / z over the values z != 0 in each interval."""
    sums = np.zeros((3, len(edges) + 1))
    for features in sets:
        for _, raw in features.chunks():
            z = raw.float().cpu()
            shaped, keep = shape(z).double(), z != 0
            sums += _sum_by_interval(z[keep].numpy(), (shaped[keep] / z[keep]).numpy(), edges)
    return sums[0, 1:-1].astype(np.int64), *mean_std(*sums[:, 1:-1])


def _sum_by_interval(z: Array, values: Array, edges: Array) -> Array:
    """Return [3, K + 2]: count, sum and sum of squares of values whose z lies before, in, after the intervals."""
    cell = np.searchsorted(np.asarray(edges, np.float32), z.ravel(), side="right")
    return np.array([np.bincount(cell, values.ravel() ** power, len(edges) + 1) for power in range(3)])


def mean_std(count: Array, total: Array, squares: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation from sums of values and of squares; NaN if there are no values."""
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = total / count
        return mean, np.sqrt(np.maximum(squares / count - mean**2, 0.0))


def profile_weights(network: StudyNetwork, optfs: OptFS = OptFS()) -> DataFrame:
    """Return set, left, right, count, mean, std: the weights of the predicted class by interval of the feature value.

    The intervals are those of OptFS on the training set; the sets are the ID test set and the real OOD set.
    """
    edges = optfs.fit(Training.of(network.train)).edges
    parts = []
    for name, features in {"ID": network.id_test, f"OOD ({network.real})": network.ood[network.real]}.items():
        sums, weight = np.zeros((3, len(edges) + 1)), features.head.weight.cpu().double()
        for _, raw, classes in features.classified_chunks():
            sums += _sum_by_interval(raw.float().cpu().numpy(), weight[classes.cpu()].numpy(), edges)
        mean, std = mean_std(*sums[:, 1:-1])
        columns = {"count": sums[0, 1:-1], "mean": mean, "std": std}
        parts.append(DataFrame({"set": name, **interval_columns(edges), **columns}))
    return concat(parts, ignore_index=True)
