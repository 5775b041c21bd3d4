"""A network of a user's own, as `--model own_models:own_net` finds it."""

from __future__ import annotations

import torch

from oodshape.images.decode.preprocessing import DIGITS, Preprocessing
from oodshape.networks import zoo


def own_net() -> tuple[torch.nn.Module, Preprocessing]:
    """The digits mixer with its preprocessing."""
    return zoo.build("digits-mixer"), DIGITS


class _Two(torch.nn.Module):
    """The digits mixer, with what an auxiliary layer says next to the logits."""

    def __init__(self) -> None:
        super().__init__()
        self.net = zoo.build("digits-mixer")
        self.aux = torch.nn.Linear(1, 3)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.net(images), self.aux(images.mean(dim=(2, 3)))


def two_outputs() -> tuple[torch.nn.Module, Preprocessing]:
    """A network that returns two tensors: which are the logits must be said."""
    torch.manual_seed(0)
    return _Two(), DIGITS
