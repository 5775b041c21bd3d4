"""A network and its detector as one module: images -> logits, score, accepted."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch import Tensor, nn

from oodshape.core.errors import HeadError, InputError
from oodshape.methods.slots import Batch, Evidence, FittedHead, FittedScore, Recipe, Shape
from oodshape.networks.classifier import Classifier
from oodshape.networks.finding import linears
from oodshape.networks.head import Head
from oodshape.networks.reading import logits_of

# logits [N, C], score [N] float32, accepted [N] bool: a plain tuple, so that an exported program is readable anywhere
Judged = tuple[Tensor, Tensor, Tensor]


class Fitted(Protocol):
    """What a guarded network takes from a detector: the recipe, and what fitting made of its slots."""

    @property
    def method(self) -> Recipe:
        """The recipe."""
        ...

    @property
    def shape(self) -> Shape:
        """The fitted shape."""
        ...

    @property
    def head(self) -> FittedHead:
        """The fitted head."""
        ...

    @property
    def scorer(self) -> FittedScore | None:
        """The fitted score."""
        ...

    @property
    def fingerprint(self) -> str:
        """Of the head that it was fitted for."""
        ...


class FeatureTap(nn.Linear):
    """In the head's place: it gives its input on, and keeps the weights."""

    def __init__(self, layer: nn.Linear) -> None:
        """Share the layer's weights; those that a parametrization computes are taken as they are now."""
        nn.Module.__init__(self)
        self.in_features, self.out_features = layer.in_features, layer.out_features
        self.weight, self.bias = _kept(layer.weight), None if layer.bias is None else _kept(layer.bias)

    def forward(self, input: Tensor) -> Tensor:
        """The features themselves."""
        return input

    def logits(self, features: Tensor) -> Tensor:
        """[N, C]: what the layer gives."""
        return nn.functional.linear(features, self.weight, self.bias)


class GuardedNet(nn.Module):
    """[N, ...] images -> (logits [N, C], score [N], accepted [N]), for inference.

    The network runs once, in a copy of its modules that shares its weights; the one given is left alone. There are
    no hooks and no choices by value, so torch.compile and torch.export take it whole, with any batch size. A score
    that is NaN is not accepted. `threshold` holds one value, or one per predicted class.

    The first call compares the logits with what the network itself returns for two images, and refuses a network
    that changes them behind its head (a softmax). A graph cannot: before torch.compile or torch.export, call it once.
    """

    threshold: Tensor
    head_weight: Tensor
    head_bias: Tensor

    def __init__(self, net: nn.Module, head: str, detector: Fitted, threshold: Tensor) -> None:
        """Guard `net`, whose layer `head` gives the logits."""
        super().__init__()
        if not detector.method.exportable:
            raise InputError(
                f"{detector.method!r} cannot go into a graph: it draws noise from the features or needs a gradient; "
                "fit another method (METHODS[name].exportable), or score with Detector.score(classifier, images)"
            )
        self.net = _tapped(_shared_copy(net), head)
        self.head_name = head
        self.checked = False  # whether the network's own output was seen to be the logits
        classes = self.tap.out_features
        if threshold.shape not in ((1,), (classes,)):
            raise InputError(f"threshold must have shape [1] or [{classes}], got {list(threshold.shape)}")
        own = Head.of((self.tap.weight, self.tap.bias))
        assert detector.scorer is not None  # a detector without one is refused
        self.shape, self.head, self.scorer = detector.shape.traced(), detector.head.traced(), detector.scorer.traced()
        bound = self.head.bind(own)
        self.rebound = bound is not own
        device = own.weight.device
        self.register_buffer("threshold", threshold.to(device, torch.float32))
        self.register_buffer("head_weight", bound.weight if self.rebound else None, persistent=False)
        bias = bound.bias if self.rebound or self.tap.bias is None else None
        self.register_buffer("head_bias", bias, persistent=False)
        self.eval()
        with torch.no_grad():  # fills the caches of the parts with tensors of flesh, before any tracer looks
            self.score(torch.zeros(2, own.width, device=device), torch.zeros(2, classes, device=device))

    @property
    def tap(self) -> FeatureTap:
        """The layer that stands in the head's place."""
        layer = self.net.get_submodule(self.head_name)
        assert isinstance(layer, FeatureTap)
        return layer

    def forward(self, images: Tensor, threshold: Tensor | None = None) -> Judged:
        """The network's logits, and whether to trust them; `threshold` in place of the module's own."""
        traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
        if not traced and not self.checked and len(images) > 0:
            self._check(images[:2])
        return self.judged(self.features(images), threshold)

    @torch.no_grad()
    def _check(self, images: Tensor) -> None:
        """Refuse a network whose output is not its head's; where the logits are not finite, the next call checks."""
        seen: list[Tensor] = []

        def logits(tap: FeatureTap, args: tuple[Tensor], features: Tensor) -> Tensor:
            seen.append(tap.logits(features))
            return seen[-1].clone()

        whole = _shared_copy(self.net)  # with the head in its place again; other threads may be in the one with the tap
        whole.get_submodule(self.head_name).register_forward_hook(logits)
        own = logits_of(whole(images.clone())).flatten(1)
        eps = max(torch.finfo(tensor.dtype).eps for tensor in (own, self.tap.weight))
        head = seen[0].reshape(len(images), -1) if len(seen) == 1 else own.new_empty(0)
        if not bool(torch.isfinite(own).all()):
            return
        if own.shape != head.shape or not bool((own.float() - head.float()).abs().max() <= 4 * eps * head.abs().max()):
            raise HeadError(
                f"head={self.head_name!r} does not give the logits of this network: it gives other values than the "
                "network (a softmax, a scale or an average follows it?); wrap the network so that it returns the "
                "head's output as it is"
            )
        self.checked = True

    def judged(self, features: Tensor, threshold: Tensor | None = None) -> Judged:
        """[N, M] features -> (logits, score, accepted)."""
        logits = self.tap.logits(features)
        score = self.score(features, logits)
        return logits, score, score >= self.limit(logits, threshold)

    def limit(self, logits: Tensor, threshold: Tensor | None = None) -> Tensor:
        """[1] or [N]: the smallest score that is accepted."""
        limits = self.threshold if threshold is None else threshold
        return limits if limits.shape[0] == 1 else limits.index_select(0, logits.argmax(dim=1))

    def features(self, images: Tensor) -> Tensor:
        """[N, M]: what reaches the head."""
        features = logits_of(self.net(images)).flatten(1)
        if features.shape[1] != self.tap.in_features:
            raise InputError(
                f"behind its head the network expects logits: it gives {features.shape[1]} values of "
                f"{self.tap.in_features} features; wrap the network so that it returns the head's output as it is"
            )
        return features

    def score(self, features: Tensor, logits: Tensor) -> Tensor:
        """[N] float32: the detector's score."""
        bias = self.head_bias if self.tap.bias is None else self.tap.bias
        own = Head(self.tap.weight.float(), bias.float())
        layer = Head(self.head_weight, self.head_bias) if self.rebound else own
        batch = Batch(features, own, given_logits=logits.float(), checked=False)
        return self.scorer.of(Evidence(batch, self.shape, self.head, layer))

    def train(self, mode: bool = True) -> GuardedNet:
        """Itself, in eval mode whatever is asked: its threshold holds for inference only."""
        for module in self.modules():
            module.training = False  # the flag itself: an overridden train() may merge the shared weights
        return self


def wrap(net: nn.Module | Classifier, detector: Fitted, threshold: Tensor, head: str | None = None) -> GuardedNet:
    """The guarded network; the head is the layer that the detector was fitted for, or the one named."""
    if isinstance(net, Classifier):
        head = head or net.head_name
        net = net.net
    inner: nn.Module = getattr(net, "_orig_mod", net)  # of a compiled network
    layers = linears(inner)
    for name in layers if head is None else [head] if head in layers else []:
        if Head.of((layers[name].weight, layers[name].bias)).fingerprint == detector.fingerprint:
            return GuardedNet(inner, name, detector, threshold)
    if head is not None and head not in layers and head in dict(inner.named_modules()):
        raise InputError(
            f"the head {head!r} of {type(inner).__name__} is no nn.Linear layer that could be replaced, so it cannot "
            "be wrapped or exported; score with Guard.score or Detector.score(classifier, images), or rebuild the head "
            "as an nn.Linear with the same weights (Classifier.head)"
        )
    where = "no nn.Linear layer" if head is None else f"no nn.Linear layer {head!r}"
    raise InputError(
        f"{type(inner).__name__} has {where} with the weights of head {detector.fingerprint}, which this detector was "
        "fitted for; fit it again for this checkpoint, or give the network of that checkpoint"
    )


def _tapped(net: nn.Module, head: str) -> nn.Module:
    """The network with a tap wherever the layer stands."""
    layer = net.get_submodule(head)
    assert isinstance(layer, nn.Linear)
    tap = FeatureTap(layer)
    for module in [*net.modules()]:
        for name, child in [*module._modules.items()]:  # named_children gives each once only
            if child is layer:
                setattr(module, name, tap)
    return tap if net is layer else net


def _kept(weight: Tensor) -> nn.Parameter:
    return weight if isinstance(weight, nn.Parameter) else nn.Parameter(weight.detach(), requires_grad=False)


def _shared_copy(net: nn.Module) -> nn.Module:
    """A copy of the modules with the same parameters and buffers."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in [*net.parameters(), *net.buffers()]}
    try:
        return copy.deepcopy(net, shared)
    except (TypeError, RuntimeError) as error:
        raise InputError(f"the modules of {type(net).__name__} cannot be copied: {error}") from None
