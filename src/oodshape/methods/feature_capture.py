"""Feature capture: read the features that reach the head of a network without hooks, also in a graph."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from oodshape.core.errors import InputError
from oodshape.networks.classifier import LARGE
from oodshape.networks.head import TINY, Head
from oodshape.networks.linear_maps import InputCapture, list_outputs


class LayerCapture(nn.Linear):
    """Replaces the nn.Linear that computes the logits: returns its input, and keeps the weights."""

    tolerance = 0.0, 4.0  # of the logits, of the largest: at least, and in units of rounding; it is the same product

    def __init__(self, layer: nn.Linear) -> None:
        # weights computed by a parametrization are copied
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = _kept(layer.weight), None if layer.bias is None else _kept(layer.bias)

    def forward(self, input: Tensor) -> Tensor:
        return input

    def logits(self, features: Tensor) -> Tensor:
        """Return [N, C]: the output of the layer."""
        return nn.functional.linear(features, self.weight, self.bias)

    def read(self, net: nn.Module, images: Tensor) -> Tensor:
        """Return [N, M]: the features that reach the head of `net`, which contains this layer."""
        features = list_outputs(net(images))[0].flatten(1)
        if features.shape[1] != self.in_features:
            raise InputError(
                f"behind its head the network expects logits: it gives {features.shape[1]} values of "
                f"{self.in_features} features; wrap the network so that it returns the head's output as it is"
            )
        return features

    def compare(self, net: nn.Module, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the outputs of a copy of the network with its head restored, and the output of the head."""
        seen: list[Tensor] = []

        def logits(tap: LayerCapture, args: tuple[Tensor], features: Tensor) -> Tensor:
            logits = tap.logits(features)
            # large ones show a clamp, too
            seen.append(logits * max(LARGE / float(logits.abs().max().clamp_min(TINY)), 1.0))
            return seen[-1].clone()

        own = next(module for module in net.modules() if isinstance(module, LayerCapture))
        own.register_forward_hook(logits)
        whole = list_outputs(net(images.clone()))[0]
        return [whole], seen[0].reshape(len(images), -1) if len(seen) == 1 else whole.new_empty(0)


class MapCapture(nn.Module):
    """The weights of a head that is linear, but not a layer that could be replaced.

    The network runs unchanged, and the input of the linear map is captured; a graph drops the unused operations.
    """

    tolerance = 2e-3, 8.0  # an average before or after the product rounds differently

    weight: Tensor
    bias: Tensor

    def __init__(self, head: Head, order: int) -> None:
        # `order`: the number of linear maps that run before the head
        super().__init__()
        self.in_features, self.out_features, self.order = head.width, head.classes, order
        self.register_buffer("weight", head.weight, persistent=False)
        self.register_buffer("bias", head.bias, persistent=False)

    def logits(self, features: Tensor) -> Tensor:
        """Return [N, C]: the output of the map."""
        return nn.functional.linear(features, self.weight.to(features.dtype), self.bias.to(features.dtype))

    def read(self, net: nn.Module, images: Tensor) -> Tensor:
        """Return [N, M]: the features that reach the head."""
        return self._both(net, images)[1]

    def compare(self, net: nn.Module, images: Tensor) -> tuple[list[Tensor], Tensor]:
        """Return the outputs of the network, and the output of the head."""
        output, features = self._both(net, images.clone())
        return list_outputs(output), self.logits(features)

    def _both(self, net: nn.Module, images: Tensor) -> tuple[Any, Tensor]:
        kept: list[Tensor | None] = []
        with InputCapture(self.order, kept):
            output = net(images)
        features = kept[self.order] if len(kept) > self.order else None
        if features is None or features.shape[1:] != (self.in_features,):
            raise InputError(
                f"the head, linear map {self.order + 1} of a forward pass, was not met in this one: the network runs "
                "other layers for these images; score with Detector.score(classifier, images)"
            )
        return output, features


def replace_head(net: nn.Module, head: str) -> nn.Module:
    """Replace the head layer by a capture wherever it occurs in the network."""
    layer = net.get_submodule(head)
    assert isinstance(layer, nn.Linear)
    tap = LayerCapture(layer)
    for module in [*net.modules()]:
        for name, child in [*module._modules.items()]:  # named_children gives each once only
            if child is layer:
                setattr(module, name, tap)
    return tap if net is layer else net


def _kept(weight: Tensor) -> nn.Parameter:
    return weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight.detach(), requires_grad=False)
