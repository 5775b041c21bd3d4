"""What tests of studies share: OOD numbers, and the V score computed naively."""

from __future__ import annotations

import numpy as np

from oodshape import METHODS
from oodshape.studies.load_networks import StudyNetwork
from oracle.shaping import naive_shape

K = 12


def ood_arrays(n: int = 150, seed: int = 7) -> np.ndarray:
    """OOD features: no class raises them."""
    return np.abs(np.random.default_rng(seed).normal(scale=0.9, size=(n, 40))).astype(np.float32)


def network(small: dict, **fields) -> StudyNetwork:
    """A network with the features of `small`; its first OOD set is the real one."""
    sets = {"train": small["train"], "id_test": small["inside"], "ood": small["ood"], "surrogates": {}}
    return StudyNetwork("net", "ConvNet", **{**sets, "methods": dict(METHODS), **fields})


def classes_of(z: np.ndarray, head: tuple) -> np.ndarray:
    return (z.astype(np.float64) @ head[0].T.astype(np.float64) + head[1]).argmax(axis=1)


def naive_v(z: np.ndarray, head: tuple, edges: np.ndarray, theta: np.ndarray) -> np.ndarray:
    shaped = naive_shape(z.astype(np.float64), edges, theta)
    return (head[0].astype(np.float64)[classes_of(z, head)] * shaped).sum(axis=1)
