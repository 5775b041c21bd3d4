"""Temperature scaling: the softmax at the temperature that suits the labels best (Guo et al., 2017)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features.moments import Moments
from oodshape.features.parts import Part
from oodshape.features.running_sums import TEMPERATURES
from oodshape.methods.scores.labelled import CHECKED, by_label
from oodshape.methods.scores.logits import LogSoftmax
from oodshape.methods.slots import Evidence, FittedScore, ScoreRecipe
from oodshape.methods.training import Training


@dataclass(frozen=True, eq=False, repr=False)
class Tempered(FittedScore):
    """max log softmax(logits / temperature)."""

    temperature: float

    def __post_init__(self) -> None:
        """Refuse a temperature that is not positive."""
        if not self.temperature > 0:
            raise InputError(f"temperature must be positive, got {self.temperature:g}")

    def of(self, seen: Evidence) -> Tensor:
        """The log of the largest probability."""
        return LogSoftmax()(seen.logits / self.temperature)


@dataclass(frozen=True, eq=False, repr=False)
class TemperatureScaling(ScoreRecipe):
    """max log softmax(logits / T), T the one at which the labels are most likely (Guo et al., 2017).

    The likelihood has its maximum where the mean logit under the probabilities equals that of the labels; it is read
    off sums at 13 temperatures between 1/8 and 8. ID images that were held out (`fit(..., held_out=...)`) serve where
    there are any: a network is surer of its training images. Without labels in the network's order T is 1.
    """

    @property
    def needs(self) -> frozenset[Part]:
        """Sums over the labels' logits."""
        return frozenset([Part.LABEL_SURPRISE, *CHECKED])

    @property
    def reads_features(self) -> bool:
        """No: logits alone."""
        return False

    def fit(self, train: Training) -> Tempered:
        """The temperature."""
        held_out = train.held_out
        moments = train.moments(self.needs) if held_out is None else held_out.moments(self.needs)
        ordered = by_label(moments, "auto")
        return Tempered(best_temperature(moments) if ordered else 1.0)


def best_temperature(moments: Moments) -> float:
    """Where the summed surprise is 0, between two temperatures in proportion; the first or last where it never is."""
    surprise = moments.parts[Part.LABEL_SURPRISE]  # falls as the temperature rises
    return float(2 ** np.interp(0.0, surprise[::-1], np.log2(TEMPERATURES)[::-1]))
