"""Training: what a recipe may look at when it is fitted."""

from __future__ import annotations

from dataclasses import dataclass

from oodshape.errors import InputError
from oodshape.features import Features
from oodshape.outputs import Head
from oodshape.stats import FeatureStats


@dataclass(frozen=True, eq=False)
class Training:
    """The statistics of the training set, and where they are at hand its head and its features."""

    stats: FeatureStats
    maybe_head: Head | None = None
    maybe_features: Features | None = None

    @classmethod
    def of(cls, train: Features | FeatureStats, head: Head | None = None) -> Training:
        """A training set from its features, or from its statistics and the head they belong to."""
        if isinstance(train, Features):
            return cls(train.stats, train.head, train)
        if not isinstance(train, FeatureStats):
            raise InputError(f"fit takes Features or FeatureStats, got {type(train).__name__}")
        if head is not None and head.fingerprint != train.head:
            raise InputError(f"the statistics belong to head {train.head}, the head given is {head.fingerprint}")
        return cls(train, head)

    @property
    def head(self) -> Head:
        """The classifier's head, or an error that says how to give it."""
        if self.maybe_head is None:
            raise InputError("this method needs the classifier's head: fit(stats, head=(weight, bias))")
        return self.maybe_head

    @property
    def features(self) -> Features:
        """The training features, or an error that says why statistics are not enough."""
        if self.maybe_features is None:
            raise InputError(
                "an exact fit goes over the features a second time: give fit the Features, not their statistics"
            )
        return self.maybe_features
