"""A network of a user's own, as `--model own_models:own_net` finds it."""

from __future__ import annotations

import torch

from oodshape.images.preprocessing import DIGITS, Preprocessing
from oodshape.networks import zoo


def own_net() -> tuple[torch.nn.Module, Preprocessing]:
    """The digits mixer with its preprocessing."""
    return zoo.build("digits-mixer"), DIGITS
