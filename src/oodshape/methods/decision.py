"""What a detector decides about images, and what the network itself says about them."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from oodshape.features.features import Features
from oodshape.networks.head import Outputs


class Decision(NamedTuple):
    """For each image: the predicted class, the score, its p-value among ID images, and whether to trust it."""

    classes: Tensor  # [N] int64
    scores: Tensor  # [N] float32
    p_values: Tensor  # [N] float64
    accepted: Tensor  # [N] bool


def predicted(data: Features | Outputs) -> Tensor:
    """[N] int64: the class that the network itself predicts."""
    return data.predictions if isinstance(data, Features) else data.logits.argmax(dim=1)
