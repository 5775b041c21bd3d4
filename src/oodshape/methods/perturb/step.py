"""The first slot of a method: a step in the image, or none."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from oodshape.methods.slots import Recipe
from oodshape.networks.head import Outputs


class Differentiable(Protocol):
    """A classifier whose logits can be differentiated by the images."""

    def __call__(self, images: Tensor) -> Outputs:
        """[N, ...] images -> features and logits, without gradients."""

    def logits(self, images: Tensor) -> Tensor:
        """[N, ...] images -> [N, C] logits, with the graph."""


class Step(Recipe, abstract=True):
    """A perturbation of the images before they reach the network."""

    @property
    def learns(self) -> bool:
        """Whether it must see training images before it is used (`learned`)."""
        return False

    def learned(self, classifier: Differentiable, batches: Iterable[Tensor]) -> Step:
        """The same step once it has seen batches of training images."""
        raise NotImplementedError

    def with_std(self, std: tuple[float, ...]) -> Step:
        """The same step for images that were divided by `std`, where its size depends on it."""
        return self

    def __call__(self, classifier: Differentiable, images: Tensor) -> Tensor:
        """Return perturbed images; the input is not changed."""
        raise NotImplementedError

    def outputs(self, classifier: Differentiable, images: Tensor) -> Outputs:
        """The network's features and logits of the perturbed images, for shape, head and score."""
        return classifier(self(classifier, images))


class NoPerturbation(Step):
    """The images as they are."""

    def __call__(self, classifier: Differentiable, images: Tensor) -> Tensor:
        """Return the images."""
        return images
