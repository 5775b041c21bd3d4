"""What the studies measure, value by value."""

from __future__ import annotations

import itertools

import numpy as np


def naive_impacts(z: np.ndarray, classes: np.ndarray, weight: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """[N, K] interval-specific feature impacts, a mask per interval, in float64."""
    z, w = z.astype(np.float64), weight.astype(np.float64)[classes]
    return np.stack([(((z >= a) & (z < b)) * z * w).sum(axis=1) for a, b in itertools.pairwise(edges)], axis=1)


def naive_profile(z: np.ndarray, shaped: np.ndarray, edges: np.ndarray) -> tuple[list[float], list[float], list[int]]:
    """Mean and standard deviation of shaped / z per interval, value by value, and how many; z = 0 left out."""
    means, stds, counts = [], [], []
    for a, b in itertools.pairwise(edges):
        pairs = zip(z.ravel().tolist(), shaped.ravel().tolist(), strict=True)
        ratios = [s / x for x, s in pairs if a <= x < b and x != 0]
        counts.append(len(ratios))
        means.append(float(np.mean(ratios)) if ratios else float("nan"))
        stds.append(float(np.std(ratios)) if ratios else float("nan"))
    return means, stds, counts
