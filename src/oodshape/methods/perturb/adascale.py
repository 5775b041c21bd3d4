"""AdaSCALE: scaling by a share of the features that depends on how far a step in the image moves them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import Ascending, AtLeast, Fraction, Positive, Sizes, copy_frozen
from oodshape.methods.perturb.step import Differentiable, Step
from oodshape.methods.shapes.ash import LARGEST_EXPONENT
from oodshape.networks.head import Outputs


class AdaScale(Step):
    """SCALE with a share p of its own for each image (Regmi, 2025); `on_logits` is AdaSCALE-L, else -A.

    A share `pixels` of the values of an image, those with the smallest gradient of the largest logit, moves by eps
    times the gradient's sign; the features z become y. With Q = sum of relu y over the `corrected` largest z plus
    `weight` times the sum of |z - y| over the `moved` largest z, and F the distribution of Q on training images,
    p = low + (1 - F(Q)) (high - low). With r = sum relu z / sum of the largest share 1 - p of relu z, A scales z by
    exp r, L the logits by r^2. eps is in units of the normalised image.
    """

    exportable = False  # it needs a gradient, which a graph does not have
    for_nonnegative = True  # it takes the sum of the positive features for the size of all

    low: Annotated[float, Fraction()] = 0.60
    high: Annotated[float, Fraction()] = 0.85
    pixels: Annotated[float, Fraction()] = 0.05
    eps: Annotated[float, Positive()] = 0.5
    corrected: Annotated[float, Fraction()] = 0.05  # of the features: the paper's k2, k1 in the code
    moved: Annotated[float, Fraction()] = 0.01
    weight: Annotated[float, AtLeast(0)] = 10.0
    on_logits: bool = False
    shifts: Annotated[NDArray[np.float32], Sizes("N"), Ascending()] | None = None  # Q of training images

    def __post_init__(self) -> None:
        """Refuse settings that have no meaning; freeze what was learned."""
        if not self.low < self.high:
            raise InputError(f"low must be less than high, got {self.low:g} and {self.high:g}")
        if self.shifts is not None:
            object.__setattr__(self, "shifts", copy_frozen(self.shifts, np.float32))

    @property
    def learns(self) -> bool:
        return self.shifts is None

    def learned(self, classifier: Differentiable, batches: Iterable[Tensor]) -> AdaScale:
        """The same with Q of these training images, as the network takes them."""
        found = [self.shift(*self._pair(classifier, images)).cpu() for images in batches]
        if not found:
            raise InputError("AdaSCALE needs training images to learn from, got none")
        return replace(self, shifts=torch.cat(found).sort().values.numpy())

    def __call__(self, classifier: Differentiable, images: Tensor) -> Tensor:
        """The images with their least important values moved; the input is left alone."""
        with torch.enable_grad():
            leaf = images.detach().clone().requires_grad_(True)
            (gradient,) = torch.autograd.grad(classifier.logits(leaf).amax(dim=1).sum(), leaf)
        sizes = gradient.abs().flatten(1)
        places = sizes.topk(int(sizes.shape[1] * self.pixels), dim=1, largest=False, sorted=False).indices
        mask = torch.zeros_like(sizes).scatter_(1, places, 1.0).reshape(images.shape)
        return (images + self.eps * mask * gradient.sign()).to(images.dtype)

    def outputs(self, classifier: Differentiable, images: Tensor) -> Outputs:
        """The network's features scaled (A), or its logits (L), by how far the step moves the features."""
        if self.shifts is None:
            raise InputError("AdaSCALE has not seen training images: use AdaScale(...).learned(classifier, batches)")
        seen, moved = self._pair(classifier, images)
        z = seen.features
        ratio = _ratio_above(z.relu(), self.shares(self.shift(seen, moved)))[:, None]
        if self.on_logits:
            return Outputs(z, seen.logits * ratio.square(), seen.head)
        scaled = z * ratio.clamp(max=LARGEST_EXPONENT).exp()
        return Outputs(scaled, seen.head.logits(scaled), seen.head)

    def _pair(self, classifier: Differentiable, images: Tensor) -> tuple[Outputs, Outputs]:
        """The network's outputs for the images and for the perturbed images."""
        return classifier(images), classifier(self(classifier, images))

    def shift(self, seen: Outputs, moved: Outputs) -> Tensor:
        """[N] float32: Q, how far the step moves the largest features, and what is left of them."""
        z, y = seen.features, moved.features
        order = z.argsort(dim=1, descending=True, stable=True)
        first, second = (order[:, : max(1, int(z.shape[1] * share))] for share in (self.corrected, self.moved))
        left = y.relu().gather(1, first).sum(dim=1)
        return (left + self.weight * (z - y).abs().gather(1, second).sum(dim=1)).float()

    def shares(self, shift: Tensor) -> Tensor:
        """[N]: the share p of the features that is left out of the largest, from Q."""
        assert self.shifts is not None
        below = np.searchsorted(self.shifts, shift.cpu().numpy(), side="right") / len(self.shifts)
        return torch.from_numpy(self.low + (1 - below) * (self.high - self.low)).to(shift.device)


def _ratio_above(z: Tensor, shares: Tensor) -> Tensor:
    """[N]: the sum of a row over that of its largest M - round(M share) values; 1 where those add up to 0.

    >>> _ratio_above(torch.tensor([[3.0, 1.0, 0.0, 0.0]]), torch.tensor([0.75]))
    tensor([1.3333])
    """
    width = z.shape[1]
    kept = (width - (width * shares).round()).long().clamp(1, width)
    sums = z.sort(dim=1, descending=True).values.cumsum(dim=1)
    top = sums.gather(1, kept[:, None] - 1)[:, 0]
    return torch.where(top > 0, sums[:, -1] / top.clamp_min(torch.finfo(top.dtype).tiny), 1.0)
