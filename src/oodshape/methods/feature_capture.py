"""Taps: how a guarded network reads the features that reach its head, without hooks, in a graph too."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from oodshape.core.errors import InputError
from oodshape.networks.classifier import LARGE
from oodshape.networks.head import TINY, Head
from oodshape.networks.linear_maps import Tap, logits_of, outputs_of


class LayerTap(nn.Linear):
    """In the place of an nn.Linear that gives the logits: it gives its input on, and keeps the weights."""

    def __init__(self, layer: nn.Linear) -> None:
        """Share the layer's weights; those that a parametrization computes are taken as they are now."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = _kept(layer.weight), None if layer.bias is None else _kept(layer.bias)

    def forward(self, input: Tensor) -> Tensor:
        return input

    def logits(self, features: Tensor) -> Tensor:
        """[N, C]: what the layer gives."""
        return nn.functional.linear(features, self.weight, self.bias)

    @staticmethod
    def near(eps: float) -> float:
        """How far logits may be from the network's own, as a fraction of the largest: it is the same product."""
        return 4 * eps

    def read(self, net: nn.Module, images: Tensor) -> Tensor:
        """[N, M]: what reaches the head of a network in which it stands."""
        features = logits_of(net(images)).flatten(1)
        if features.shape[1] != self.in_features:
            raise InputError(
                f"behind its head the network expects logits: it gives {features.shape[1]} values of "
                f"{self.in_features} features; wrap the network so that it returns the head's output as it is"
            )
        return features

    def compared(self, net: nn.Module, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """What a copy of the network with the head in its place gives, and what the head gives."""
        seen: list[Tensor] = []

        def logits(tap: LayerTap, args: tuple[Tensor], features: Tensor) -> Tensor:
            logits = tap.logits(features)
            # large ones show a clamp, too
            seen.append(logits * max(LARGE / float(logits.abs().max().clamp_min(TINY)), 1.0))
            return seen[-1].clone()

        own = next(module for module in net.modules() if isinstance(module, LayerTap))
        own.register_forward_hook(logits)
        whole = logits_of(net(images.clone()))
        return [whole], seen[0].reshape(len(images), -1) if len(seen) == 1 else whole.new_empty(0)


class MapTap(nn.Module):
    """Beside a network whose head is linear and no layer that could be replaced: its weights, as they are now.

    The network runs as it is, and what the head's map is given is kept; a graph leaves out what then goes unused.
    """

    weight: Tensor
    bias: Tensor

    def __init__(self, head: Head, order: int) -> None:
        """Of the map that `order` others run before."""
        super().__init__()
        self.in_features, self.out_features, self.order = head.width, head.classes, order
        self.register_buffer("weight", head.weight, persistent=False)
        self.register_buffer("bias", head.bias, persistent=False)

    def logits(self, features: Tensor) -> Tensor:
        """[N, C]: what the map gives."""
        return nn.functional.linear(features, self.weight.to(features.dtype), self.bias.to(features.dtype))

    @staticmethod
    def near(eps: float) -> float:
        """How far logits may be from the network's own: an average before or after the product rounds otherwise."""
        return max(2e-3, 8 * eps)

    def read(self, net: nn.Module, images: Tensor) -> Tensor:
        """[N, M]: what reaches the head."""
        return self._both(net, images)[1]

    def compared(self, net: nn.Module, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """What the network gives, and what the head gives."""
        output, features = self._both(net, images.clone())
        return outputs_of(output), self.logits(features)

    def _both(self, net: nn.Module, images: Tensor) -> tuple[Any, Tensor]:
        kept: list[Tensor | None] = []
        with Tap(self.order, kept):
            output = net(images)
        features = kept[self.order] if len(kept) > self.order else None
        if features is None or features.shape[1:] != (self.in_features,):
            raise InputError(
                f"the head, linear map {self.order + 1} of a forward pass, was not met in this one: the network runs "
                "other layers for these images; score with Detector.score(classifier, images)"
            )
        return output, features


def tapped(net: nn.Module, head: str) -> nn.Module:
    """The network with a tap wherever the layer stands."""
    layer = net.get_submodule(head)
    assert isinstance(layer, nn.Linear)
    tap = LayerTap(layer)
    for module in [*net.modules()]:
        for name, child in [*module._modules.items()]:  # named_children gives each once only
            if child is layer:
                setattr(module, name, tap)
    return tap if net is layer else net


def _kept(weight: Tensor) -> nn.Parameter:
    return weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight.detach(), requires_grad=False)
