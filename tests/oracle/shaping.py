"""OptFS and what ASH keeps, value by value."""

from __future__ import annotations

import itertools

import numpy as np


def naive_optfs(
    train: np.ndarray, classes: np.ndarray, weight: np.ndarray, edges: np.ndarray, norm: float
) -> np.ndarray:
    """theta by the paper's formula: a mask per interval, value by value, in float64."""
    z, w = train.astype(np.float64), weight.astype(np.float64)[classes]
    masks = [(z >= a) & (z < b) for a, b in itertools.pairwise(edges)]
    impact = np.array([(mask * z * w).sum(axis=1).mean() for mask in masks])
    return impact / np.linalg.norm(impact) * norm


def naive_energies(train: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """[K]: the mean of the summed squares in each interval, a mask per interval."""
    z = train.astype(np.float64)
    inside = [np.where((z >= a) & (z < b), z, 0.0) for a, b in itertools.pairwise(edges)]
    return np.array([(values**2).sum(axis=1).mean() for values in inside])


def naive_shape(z: np.ndarray, edges: np.ndarray, theta: np.ndarray) -> np.ndarray:
    """theta(z) z, a mask per interval."""
    shaped = np.zeros_like(z)
    for a, b, t in zip(edges[:-1], edges[1:], theta, strict=True):
        shaped += np.where((z >= a) & (z < b), t * z, 0.0)
    return shaped


def kept(row: np.ndarray, p: float) -> list[int]:
    """The places of the largest share 1 - p of a row."""
    size = len(row) - round(p * len(row))
    return sorted(range(len(row)), key=lambda j: -row[j])[:size]
