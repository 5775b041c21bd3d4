"""Prints: a few projections of an image's features, by which its pixels are found again in a file of another format."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.features.features import Features
from oodshape.features.training_sums import TrainingSums
from oodshape.images import identity
from oodshape.images.duplicates import SKETCH

PROJECTIONS = 4
CLOSE = 1e-5  # of the largest print: other batch sizes round by less
Prints = NDArray[np.float32]  # [N, 4]


def project(features: Tensor) -> Prints:
    """[N, M] features -> [N, 4] prints, by fixed random directions."""
    generator = torch.Generator().manual_seed(0)
    directions = torch.randn(features.shape[1], PROJECTIONS, generator=generator, dtype=torch.float32)
    return np.asarray((features.detach().float().cpu() @ directions).numpy())


def make_prints(*sets: Features | TrainingSums, most: int = SKETCH) -> Prints:
    """The prints of at most so many images of each set, which are chosen by their identities; sums have none."""
    found = [np.empty((0, PROJECTIONS), np.float32)]
    for features in sets:
        if isinstance(features, Features):
            rows = identity.smallest(features.identities, most, 0, "prints")
            found += [project(chunk) for _, chunk in features[rows].chunks()]
    return np.concatenate(found)


def find_known(prints: Prints, known: Prints | None) -> NDArray[np.int64]:
    """The rows whose print is known; prints that several known images share tell nothing, and do not count."""
    if known is None or len(known) == 0 or len(prints) == 0:
        return np.empty(0, np.int64)
    from scipy.spatial import KDTree

    distances, _ = KDTree(known).query(prints, k=[1, 2], p=np.inf)  # infinite where there is one only
    return np.flatnonzero((distances <= CLOSE * float(np.abs(known).max())).sum(axis=1) == 1)
