"""Perturbations of the input images before they reach the network."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.methods.base import Recipe
from oodshape.networks.head import Outputs

# the per-channel constants of the ODIN code, which most later code copied whatever the data
AUTHORS_STD = (63.0 / 255.0, 62.1 / 255.0, 66.7 / 255.0)


class Differentiable(Protocol):
    """A classifier whose logits can be differentiated by the images."""

    def __call__(self, images: Tensor) -> Outputs:
        """[N, ...] images -> features and logits, without gradients."""
        ...

    def logits(self, images: Tensor) -> Tensor:
        """[N, ...] images -> [N, C] logits, the graph kept."""
        ...


class Step(Recipe):
    """A step in the image, of size `eps`: what fills the first slot."""

    eps: float

    @property
    def learns(self) -> bool:
        """Whether it has to see training images before it can be used (`learned`)."""
        return False

    def learned(self, classifier: Differentiable, batches: Iterable[Tensor]) -> Step:
        """The same step once it has seen batches of training images."""
        raise NotImplementedError

    def __call__(self, classifier: Differentiable, images: Tensor) -> Tensor:
        """The perturbed images; the input is left alone."""
        raise NotImplementedError

    def outputs(self, classifier: Differentiable, images: Tensor) -> Outputs:
        """What shape, head and score go on with: what the network says of the perturbed images."""
        return classifier(self(classifier, images))


@dataclass(frozen=True, eq=False, repr=False)
class Odin(Step):
    """A step of size eps that raises the confidence of the predicted class (Liang et al., 2018).

    images - eps / std * sign(gradient of the cross entropy at the given temperature). `std` is that of the
    transform that made the images, one per channel, so that eps is in units of the pixel range 0..1.
    """

    eps: float = 0.0
    std: tuple[float, ...] = (1.0,)
    temperature: float = 1000.0

    def __post_init__(self) -> None:
        if not 0 <= self.eps < 1:
            raise InputError(f"eps must lie in [0, 1), got {self.eps:g}; the pixel range is 0..1")
        if not (self.temperature > 0 and self.std and min(self.std) > 0):
            raise InputError(f"temperature and std must be positive, got {self.temperature:g} and {self.std}")

    @property
    def exportable(self) -> bool:
        """Only where it does nothing: a step needs a gradient, which a graph does not have."""
        return self.eps == 0

    def __call__(self, classifier: Differentiable, images: Tensor) -> Tensor:
        """The perturbed images; the input is left alone."""
        if self.eps == 0:
            return images
        if len(self.std) not in (1, images.shape[1]):
            raise InputError(f"std has {len(self.std)} values, the images have {images.shape[1]} channels")
        with torch.enable_grad():
            leaf = images.detach().clone().requires_grad_(True)
            logits = classifier.logits(leaf) / self.temperature
            loss = torch.nn.functional.cross_entropy(logits, logits.argmax(dim=1).detach(), reduction="sum")
            (gradient,) = torch.autograd.grad(loss, leaf)
        std = torch.tensor(self.std, device=images.device).reshape(1, -1, *(1 for _ in images.shape[2:]))
        sign = torch.where(gradient >= 0, 1.0, -1.0)
        return (images - self.eps / std * sign).to(images.dtype)
