"""Scores from the features and the decision boundaries or weights of the head: fDBD, ORA, NCI."""

from __future__ import annotations

from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.values import Sizes
from oodshape.features.kernels import TINY, row_distances
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training_set import Training
from oodshape.networks.head import Head

MANY = 4096  # classes, from which the distances between all of them would take much memory


def _at_hand(head: Head) -> bool:
    return not torch.compiler.is_compiling() and head.classes <= MANY


def _distances(head: Head, classes: Tensor) -> Tensor:
    """[n, C]: between the weights of some classes and those of all; computed once for a head of not too many."""
    return head.distances[classes] if _at_hand(head) else row_distances(head.weight[classes], head.weight)


def _closeness(head: Head, classes: Tensor) -> Tensor:
    """[n, C]: 1 over these distances; 0 for the class itself, and for classes with the same weights: no boundary."""
    if _at_hand(head):
        return head.closeness.index_select(0, classes)
    lengths = _distances(head, classes)
    return torch.where(lengths > TINY, lengths.clamp_min(TINY).reciprocal(), 0.0).scatter(1, classes[:, None], 0.0)


class BoundaryDistance(FittedScore):
    """Mean distance to the decision boundaries of all other classes, over the distance to the mean feature."""

    mean: Annotated[NDArray[np.float32], Sizes("M")]

    def of(self, seen: Evidence) -> Tensor:
        classes = seen.classes
        gaps = (seen.logits - seen.logits.gather(1, classes[:, None])).abs()
        away: Tensor = torch.linalg.vector_norm(seen.features - self.tensor("mean", gaps), dim=1)
        distances = gaps.mul_(_closeness(seen.head, classes)).sum(dim=1)
        return distances / max(gaps.shape[1] - 1, 1) / away.clamp_min(TINY)


class Fdbd(ScoreRecipe):
    """The regularised distance to the decision boundaries (fDBD; Liu & Qin, 2024)."""

    def fit(self, train: Training) -> BoundaryDistance:
        """The mean training feature; how close the classes are is looked at once, and kept with the head."""
        if _at_hand(train.head):
            train.head.closeness  # noqa: B018  kept: the first score would wait for it
        return BoundaryDistance(train.mean())


class BoundaryAngle(FittedScore):
    """The largest angle, seen from the mean feature, between an image and its projections on decision boundaries."""

    mean: Annotated[NDArray[np.float32], Sizes("M")]

    def of(self, seen: Evidence) -> Tensor:
        """max over c' of the angle between z - mean and z' - mean, over pi; z' lies where l_c' = l_c.

        With u = z - mean, w = w_c - w_c' and a = (l_c - l_c') / ||w||^2, z' - mean is u - a w, and the tangent of the
        angle is a sqrt(uu ww - uw^2) / (uu - a uw): no projection has to be made.
        """
        head, classes = seen.head, seen.classes[:, None]
        mean = self.tensor("mean", seen.features)
        gaps = seen.logits.gather(1, classes) - seen.logits
        ww = _distances(head, seen.classes).square()
        along = seen.logits - head.bias - head.weight @ mean  # w_c' . u, without another product with the head
        uw, uu = along.gather(1, classes) - along, (seen.features - mean).square().sum(dim=1, keepdim=True)
        # the class itself, and classes with the same weights, have no boundary
        step = torch.where(ww > TINY, gaps / ww.clamp_min(TINY), 0.0).scatter(1, classes, 0.0)
        across = step * (uu * ww - uw.square()).clamp_min(0.0).sqrt()
        return torch.atan2(across, uu - step * uw).amax(dim=1) / torch.pi


class Ora(ScoreRecipe):
    """The largest relative angle to a decision boundary (ORA; Demirel et al., 2025)."""

    def fit(self, train: Training) -> BoundaryAngle:
        return BoundaryAngle(train.mean())


class WeightProximity(FittedScore):
    """w_c . (z - mean) / ||z - mean|| + alpha ||z||_1, c the predicted class."""

    mean: Annotated[NDArray[np.float32], Sizes("M")]
    alpha: float

    def of(self, seen: Evidence) -> Tensor:
        """How far the centred features point along the predicted weights, and how long they are."""
        weights = seen.head.weight.index_select(0, seen.classes)  # first: it looks at the logits
        centred = seen.features - self.tensor("mean", seen.features)
        length: Tensor = torch.linalg.vector_norm(centred, dim=1)
        along = weights.mul_(centred).sum(dim=1) / length.clamp_min(TINY)
        return along + self.alpha * seen.features.abs().sum(dim=1)


class Nci(ScoreRecipe):
    """Closeness of the features to the predicted class's weights (NCI; Liu & Qin, 2025)."""

    alpha: float = 0.001

    def fit(self, train: Training) -> WeightProximity:
        return WeightProximity(train.mean(), self.alpha)
