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

TrainingData = Features | FeatureStats | Sums | TrainingSums


@dataclass(frozen=True, eq=False)
class Training:
    """A training set as recipes see it: its statistics, and if available its head and features.

    >>> train = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> Training.of(train).mean().tolist()
    [0.75, 1.75]

    Attributes:
        maybe_stats: Statistics of the features, if known.
        maybe_head: The head, if known.
        maybe_features: The features, if available.
        maybe_moments: Further sums over the features, if known.
        proxy: Features of proxy OOD images to select by.
        held_out: Features of ID images that the network was not trained on, to select by.
        summed: Sums over the images to fit on and to select by, instead of features.
    """

    maybe_stats: FeatureStats | None = None
    maybe_head: Head | None = None
    maybe_features: Features | None = None
    maybe_moments: Moments | None = None
    proxy: tuple[Features, ...] = ()  # images that no classifier should trust, to choose by
    held_out: Features | None = None  # ID images that the network was not trained on, to choose by
    summed: TrainingSums | None = None  # in place of features: sums of those to fit on and of those to choose by

    @classmethod
    def of(
        cls,
        train: TrainingData,
        head: Head | None = None,
        moments: Moments | None = None,
        proxy: Sequence[Features] = (),
        held_out: Features | None = None,
    ) -> Training:
        """Make a training set from features, or from statistics and their head.

        Args:
            train: Features, `FeatureStats` or `TrainingSums`.
            head: The head, if statistics do not come with it.
            moments: `Moments` of the same features.
            proxy: Features of proxy OOD images.
            held_out: Features of ID images to select by.

        Returns:
            The training set.

        Raises:
            InputError: If the parts belong to different heads or features.
        """
        if isinstance(train, Features):
            return cls(None, train.head, train, proxy=tuple(proxy), held_out=held_out)
        if isinstance(train, TrainingSums):
            every = train.every
            return cls(every.stats, every.head, None, every.held, tuple(proxy), held_out, train)
        if isinstance(train, Sums):
            return cls(train.stats, train.head, None, train.held, tuple(proxy), held_out)
        if not isinstance(train, FeatureStats):
            raise InputError(f"fit takes Features or FeatureStats, got {type(train).__name__}")
        if head is not None and head.fingerprint != train.head:
            raise InputError(f"the statistics belong to head {train.head}, the head given is {head.fingerprint}")
        if moments is not None and (moments.head, moments.n) != (train.head, train.n):
            raise InputError(
                f"the moments are of {moments.n} images and head {moments.head}, "
                f"the statistics of {train.n} and {train.head}; collect both over the same features"
            )
        return cls(train, head, None, moments, tuple(proxy), held_out)

    @property
    def stats(self) -> FeatureStats:
        """The statistics, collected from the features on first use if they are available."""
        if self.maybe_stats is not None:
            return self.maybe_stats
        return self.features.stats

    @property
    def signed(self) -> bool:
        """Whether more than a hundredth of the values are negative; a few may be, after a ReLU, by rounding."""
        source = self.maybe_features
        return self.stats.signed if source is None or source.half else source.quantile(NEGATIVE) < 0

    @property
    def sums(self) -> NDArray[Any]:
        """[M]: the sum of each feature, which takes less than all statistics."""
        return self.stats.sums if self.maybe_features is None else self.maybe_features.sums

    def mean(self) -> NDArray[Any]:
        """Return the mean of each feature.

        Returns:
            [M] float64.
        """
        return np.asarray(self.sums / self.n)

    @property
    def n(self) -> int:
        return self.stats.n if self.maybe_features is None else len(self.maybe_features)

    @property
    def fingerprint(self) -> str:
        """That of the head which the images were seen by."""
        return self.stats.head if self.maybe_features is None else self.maybe_features.head.fingerprint

    @property
    def head(self) -> Head:
        """The classifier's head, or an error that says how to give it."""
        if self.maybe_head is None:
            raise InputError("this method needs the classifier's head: fit(stats, head=(weight, bias))")
        return self.maybe_head

    def moments(self, needs: frozenset[str]) -> Moments:
        """Return the sums that a recipe needs, from the features if they are available.

        Args:
            needs: Names of the statistics.

        Returns:
            The sums.

        Raises:
            InputError: If there are neither features nor these sums.
        """
        parts = as_statistics(needs)
        if self.maybe_features is not None:
            return self.maybe_features.moments(parts, stats=False)
        missing = sorted(parts - set(() if self.maybe_moments is None else self.maybe_moments.parts))
        if self.maybe_moments is None or missing:
            raise InputError(
                f"this method needs the {', '.join(missing)} of the training features: give fit the Features, "
                "or their moments, fit(stats, head=..., moments=Moments.of(features, method.needs))"
            )
        return self.maybe_moments

    @property
    def features(self) -> Features:
        """The training features, or an error that says why statistics are not enough."""
        if self.maybe_features is None:
            raise InputError("this recipe goes over the features: give fit the Features, not their statistics")
        return self.maybe_features


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
