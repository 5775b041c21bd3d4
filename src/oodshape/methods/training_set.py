"""Training: what a recipe may look at when it is fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.features.feature_stats import NEGATIVE, FeatureStats
from oodshape.features.features import Features
from oodshape.features.moments import Moments, Statistic, as_statistics
from oodshape.features.training_sums import Sums, TrainingSums
from oodshape.networks.head import Head

TrainingData = Features | Sums | TrainingSums


@dataclass(frozen=True, eq=False)
class Training:
    """A training set as recipes see it: its features, or sums over them.

    >>> train = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> Training.of(train).mean().tolist()
    [0.75, 1.75]

    Attributes:
        data: The features, or sums over all images.
        proxy: Features of proxy OOD images to select by.
        held_out: Features of ID images that the network was not trained on, to select by.
        summed: Sums over the images to fit on and to select by, instead of features.
    """

    data: Features | Sums
    proxy: tuple[Features, ...] = ()  # images that no classifier should trust, to choose by
    held_out: Features | None = None  # ID images that the network was not trained on, to choose by
    summed: TrainingSums | None = None  # in place of features: sums of those to fit on and of those to choose by

    @classmethod
    def of(cls, train: TrainingData, proxy: Sequence[Features] = (), held_out: Features | None = None) -> Training:
        """Make a training set from features, or from sums over them.

        Args:
            train: Features, `Sums` or `TrainingSums`.
            proxy: Features of proxy OOD images.
            held_out: Features of ID images to select by.

        Returns:
            The training set.

        Raises:
            InputError: If `train` is something else.
        """
        if isinstance(train, TrainingSums):
            return cls(train.every, tuple(proxy), held_out, train)
        if not isinstance(train, (Features, Sums)):
            raise InputError(f"fit takes Features, Sums or TrainingSums, got {type(train).__name__}")
        return cls(train, tuple(proxy), held_out)

    @property
    def stats(self) -> FeatureStats:
        """The statistics, collected from the features on first use if they are available."""
        return self.data.stats

    @property
    def head(self) -> Head:
        """The classifier's head."""
        return self.data.head

    @property
    def n(self) -> int:
        return len(self.data)

    @property
    def signed(self) -> bool:
        """Whether more than a hundredth of the values are negative; a few may be, after a ReLU, by rounding."""
        source = self.maybe_features
        return self.stats.signed if source is None else source.quantile(NEGATIVE) < 0

    def mean(self) -> NDArray[Any]:
        """Return the mean of each feature, which takes less than all statistics.

        Returns:
            [M] float64.
        """
        sums = self.data.sums if isinstance(self.data, Features) else self.stats.sums
        return np.asarray(sums / self.n)

    def moments(self, needs: frozenset[str]) -> Moments:
        """Return the sums that a recipe needs, from the features if they are available.

        Args:
            needs: Names of the statistics.

        Returns:
            The sums.

        Raises:
            InputError: If there are neither features nor these sums.
        """
        if isinstance(self.data, Features):
            return self.data.moments(as_statistics(needs), stats=False)
        return self.data.moments(needs)

    @property
    def maybe_features(self) -> Features | None:
        """The training features, if they are available."""
        return self.data if isinstance(self.data, Features) else None

    @property
    def features(self) -> Features:
        """The training features, or an error that says why sums are not enough."""
        if not isinstance(self.data, Features):
            raise InputError("this recipe goes over the features: give fit the Features, not sums over them")
        return self.data


Classes = Literal["predicted", "labels", "auto"]
CHECKED = frozenset([Statistic.LABEL_COUNTS, Statistic.RIGHT_COUNTS])  # what the check looks at
LEAST_RIGHT = 0.5  # of the images must be predicted as their label: in another order hardly any is


def uses_labels(moments: Moments, classes: Classes) -> bool:
    """Whether classes are those of the labels: every image has one, and they are in the network's order.

    `labels` refuses images for which that is not so, `auto` takes the predicted classes for them.
    """
    if classes == "predicted":
        return False
    why = _why_not(moments)
    if why and classes == "labels":
        raise InputError(f'{why}; give labels in the order of the network\'s classes, or use classes="predicted"')
    return not why


def _why_not(moments: Moments) -> str:
    labelled, right = (float(moments.parts[part].sum()) for part in (Statistic.LABEL_COUNTS, Statistic.RIGHT_COUNTS))
    if labelled < moments.n:
        return f"{moments.n - labelled:.0f} of {moments.n} training images have no label that is a class of the network"
    if right < LEAST_RIGHT * moments.n:
        return (
            f"the network predicts the label of only {100 * right / moments.n:.1f} % of the training images: their "
            "labels may be in another order than its classes"
        )
    return ""
