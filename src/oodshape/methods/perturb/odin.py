"""ODIN: a gradient step on the image that raises the confidence of the predicted class."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import Fraction, Positive
from oodshape.methods.perturb.step import Differentiable, Step


class Odin(Step):
    """A step of size eps that raises the confidence of the predicted class (Liang et al., 2018).

    images - eps / std * sign(gradient of the cross entropy at the given temperature). `std` is that of the
    preprocessing of the images, one per channel, so that eps is in units of the pixel range 0..1.
    """

    exportable = False  # a step needs a gradient, which a graph does not have

    eps: Annotated[float, Fraction()] = 0.0014
    std: tuple[float, ...] = (1.0,)
    temperature: Annotated[float, Positive()] = 1000.0

    def __post_init__(self) -> None:
        if not (self.std and min(self.std) > 0):
            raise InputError(f"std must be positive, got {self.std}")

    def with_std(self, std: tuple[float, ...]) -> Odin:
        return replace(self, std=std)

    def __call__(self, classifier: Differentiable, images: Tensor) -> Tensor:
        """Return perturbed images; the input is not changed."""
        if len(self.std) not in (1, images.shape[1]):
            raise InputError(f"std has {len(self.std)} values, the images have {images.shape[1]} channels")
        with torch.enable_grad():
            leaf = images.detach().clone().requires_grad_(True)
            logits = classifier.logits(leaf) / self.temperature
            loss = torch.nn.functional.cross_entropy(logits, logits.argmax(dim=1).detach(), reduction="sum")
            (gradient,) = torch.autograd.grad(loss, leaf)
        std = images.new_tensor(self.std).reshape(1, -1, *(1 for _ in images.shape[2:]))
        sign = torch.where(gradient >= 0, 1.0, -1.0)
        return (images - self.eps / std * sign).to(images.dtype)
