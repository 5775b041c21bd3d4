"""Scores that compare an image with the mean of a class: KL matching, SHE, CARef, CADRef.

Classes are those that the network predicts, so no labels are needed; SHE may use them. A class that was never
predicted on the training set has no mean: KL matching leaves it out, and the others take the mean of all images in its
place.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.values import Sizes, freeze_array
from oodshape.features.kernels import TINY
from oodshape.features.moments import Statistic
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training_set import CHECKED, Classes, Training, uses_labels

PREDICTED = frozenset([Statistic.COUNTS, Statistic.CLASS_SUMS])
AT_ONCE = 256  # classes: copies of all sums would be large where there are many
SMALLEST = 1e-30  # of a mean probability: its logarithm must be finite


class Templates(FittedScore):
    """-min over classes of KL(p || template), the templates given by their logarithms."""

    log_templates: Annotated[NDArray[np.float32], Sizes("K C")]  # K classes were seen

    def of(self, seen: Evidence) -> Tensor:
        log_p = seen.logits.log_softmax(dim=1)
        p = log_p.exp()
        cross = p @ self.tensor("log_templates", p).T
        return cross.amax(dim=1) - (p * log_p).sum(dim=1)


class KlMatching(ScoreRecipe):
    """-min_c KL(p || mean p of class c) (Hendrycks et al., 2022), over the classes that were predicted."""

    needs = frozenset([Statistic.COUNTS, Statistic.SOFTMAX_SUMS])

    def fit(self, train: Training) -> Templates:
        parts = train.moments(self.needs).parts
        sums, counts = parts[Statistic.SOFTMAX_SUMS], parts[Statistic.COUNTS]
        seen = np.flatnonzero(counts)
        logs = np.empty((len(seen), len(counts)), np.float32)
        for first in range(0, len(seen), AT_ONCE):
            some = seen[first : first + AT_ONCE]
            logs[first : first + AT_ONCE] = np.log(np.maximum(sums[some] / counts[some, None], SMALLEST))
        return Templates(freeze_array(logs))


class Pattern(FittedScore):
    """z . mean_c, c the predicted class."""

    means: Annotated[NDArray[np.float32], Sizes("C M")]

    def of(self, seen: Evidence) -> Tensor:
        means = self.tensor("means", seen.head.weight).index_select(0, seen.classes)  # first: it looks at the logits
        return means.mul_(seen.features).sum(dim=1)


class She(ScoreRecipe):
    """The inner product with the mean feature of the predicted class (SHE; Zhang et al., 2023).

    The mean is that of the images `predicted` as the class, or of those among them whose label it is (`labels`; where
    all images have a label in the network's order: `auto`). The authors take images that are classified correctly. A
    class without such images takes the mean of those predicted as it, and without these the mean of all images.
    """

    classes: Classes = "predicted"

    def unlabelled(self) -> She:
        return replace(self, classes="predicted")

    @property
    def needs(self) -> frozenset[Statistic]:
        """Class sums of features; of those classified correctly where labels may be used."""
        return PREDICTED if self.classes == "predicted" else PREDICTED | CHECKED | {Statistic.RIGHT_SUMS}

    def fit(self, train: Training) -> Pattern:
        moments = train.moments(self.needs)
        if uses_labels(moments, self.classes):
            right, some = moments.means(Statistic.RIGHT_SUMS, Statistic.RIGHT_COUNTS)
            return Pattern(np.where(some[:, None], right, moments.means(Statistic.CLASS_SUMS)[0]))
        return Pattern(moments.means(Statistic.CLASS_SUMS)[0])


class RelativeError(FittedScore):
    """-||z - mean_c||_1 / ||z||_1, c the predicted class."""

    means: Annotated[NDArray[np.float32], Sizes("C M")]

    def of(self, seen: Evidence) -> Tensor:
        return -self.errors(seen).abs().sum(dim=1)

    def errors(self, seen: Evidence) -> Tensor:
        """[n, M]: (z - mean_c) / ||z||_1."""
        z = seen.features
        length = z.abs().sum(dim=1, keepdim=True).clamp_min(TINY)
        return (z - self.tensor("means", z)[seen.classes]) / length


class CaRef(ScoreRecipe):
    """Minus the relative L1 distance to the mean feature of the predicted class (CARef; Ling et al., 2025)."""

    needs = PREDICTED

    def fit(self, train: Training) -> RelativeError:
        return RelativeError(train.moments(self.needs).means(Statistic.CLASS_SUMS)[0])


class DecoupledError(RelativeError):
    """-(E+ mean energy / energy + E-): E+ the errors along the sign of w_c, E- those against it."""

    energy: float  # the mean over the training set

    def of(self, seen: Evidence) -> Tensor:
        """Minus the errors, those along the weights scaled by how low the energy is."""
        errors = self.errors(seen)
        along = errors * seen.head.weight[seen.classes].sign()  # a weight of 0 has no side, as in the authors' code
        positive, negative = along.clamp_min(0).sum(dim=1), -along.clamp_max(0).sum(dim=1)
        ratio = torch.logsumexp(seen.logits, dim=1) / self.energy if self.energy > 0 else torch.ones_like(positive)
        return -(positive / ratio.clamp_min(LEAST_RATIO) + negative)


LEAST_RATIO = 0.01  # of an energy to the mean one: near 0 and below, the quotient has no meaning


class CadRef(ScoreRecipe):
    """CARef with errors split by the sign of w_c, those along it divided by the energy (CADRef; Ling et al., 2025).

    The authors' E+ / energy + E- / mean energy, times the mean energy: the same order, numbers near those of CARef.
    Where the mean energy of the training set is not positive it cannot divide, and nothing is scaled.
    """

    needs = PREDICTED | {Statistic.ENERGY}

    def fit(self, train: Training) -> DecoupledError:
        moments = train.moments(self.needs)
        return DecoupledError(
            moments.means(Statistic.CLASS_SUMS)[0], float(moments.parts[Statistic.ENERGY][0]) / moments.n
        )
