"""A network and its detector as one module: images -> logits, score, accepted."""

from __future__ import annotations

import copy
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from oodshape.core.errors import HeadError, InputError
from oodshape.methods.feature_capture import LayerCapture, MapCapture, replace_head
from oodshape.methods.slots import Batch, Evidence, FittedSlots
from oodshape.networks.classifier import Classifier, unwrap_network
from oodshape.networks.device import ACCELERATORS
from oodshape.networks.find_head import list_linears
from oodshape.networks.head import Head
from oodshape.networks.linear_maps import HUGE, eval_mode

# logits [N, C], score [N] float32, accepted [N] bool: a plain tuple, so that an exported program is readable anywhere
GuardedOutput = tuple[Tensor, Tensor, Tensor]


class GuardedNet(nn.Module):
    """[N, ...] images -> (logits [N, C], score [N], accepted [N]), for inference.

    The network runs once, in a copy of its modules that shares its weights; the one given is left alone. There are
    no hooks and no choices by value, so torch.compile and torch.export take it whole, with any batch size. A score
    that is NaN or infinite is NaN, and not accepted. `threshold` holds one value, or one per predicted class.

    The first call compares the logits with what the network itself returns for two images, and refuses a network
    that changes them behind its head (a softmax). A graph cannot: before torch.compile or torch.export, call it once.
    """

    threshold: Tensor
    head_weight: Tensor
    head_bias: Tensor

    def __init__(
        self, net: nn.Module, head: str, detector: FittedSlots, threshold: Tensor, tap: MapCapture | None = None
    ) -> None:
        """Guard `net`, whose layer `head` gives the logits, or in whose module `head` a map does that `tap` reads."""
        super().__init__()
        if not detector.method.exportable:
            raise InputError(
                f"{detector.method!r} cannot go into a graph: it draws noise from the features or needs a gradient; "
                "fit another method (METHODS[name].exportable), or score with Detector.score(classifier, images)"
            )
        whole = _shared_copy(net)
        with eval_mode(whole):  # in train mode a parametrization may change its buffers
            self.net = replace_head(whole, head) if tap is None else whole
        self.head_name, self.map_tap = head, tap
        self.checked = False  # whether the network's own output was seen to be the logits
        classes = self.tap.out_features
        if threshold.shape not in ((1,), (classes,)):
            raise InputError(f"threshold must have shape [1] or [{classes}], got {list(threshold.shape)}")
        own = Head.view((self.tap.weight, self.tap.bias))
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
            self.score(own.weight.new_zeros(2, own.width), own.weight.new_zeros(2, classes))

    @property
    def tap(self) -> LayerCapture | MapCapture:
        """What stands in the head's place, or next to the network."""
        tap = self.map_tap or self.net.get_submodule(self.head_name)
        assert isinstance(tap, (LayerCapture, MapCapture))
        return tap

    def forward(self, images: Tensor, threshold: Tensor | None = None) -> GuardedOutput:
        """The network's logits, and whether to trust them; `threshold` in place of the module's own."""
        traced = torch.compiler.is_compiling() or torch._C._get_tracing_state() is not None
        kind = images.device.type
        autocast = kind in ("cpu", *ACCELERATORS) and torch.is_autocast_enabled(kind)
        # not without_autocast, which a graph cannot enter
        with torch.autocast(kind, enabled=False) if autocast else nullcontext():
            if not traced and not self.checked and len(images) > 0:
                self._check(images[:2])
            return self.score_features(self.features(images), threshold)

    @torch.no_grad()
    def _check(self, images: Tensor) -> None:
        """Refuse a network whose output is not its head's; where the logits are not finite, the next call checks."""
        # a copy with the head in its place again; other threads may be in the one with the tap
        given, head = self.tap.compare(_shared_copy(self.net), images)
        whole = [each.flatten(1) for each in given if each.shape[:1] == images.shape[:1] and each.ndim > 1]
        if any(not bool(torch.isfinite(own).all()) for own in whole):
            return
        if not any(self._close(own, head) for own in whole):
            raise HeadError(
                f"head={self.head_name!r} does not give the logits of this network: it gives other values than the "
                "network (a softmax, a scale or an average follows it?); wrap the network so that it returns the "
                "head's output as it is"
            )
        self.checked = True

    def _close(self, own: Tensor, head: Tensor) -> bool:
        eps = max(torch.finfo(tensor.dtype).eps for tensor in (own, self.tap.weight))
        least, units = self.tap.tolerance
        near = max(least, units * eps)
        return own.shape == head.shape and bool((own.float() - head.float()).abs().max() <= near * head.abs().max())

    def score_features(self, features: Tensor, threshold: Tensor | None = None) -> GuardedOutput:
        """[N, M] features -> (logits, score, accepted)."""
        logits = self.tap.logits(features)
        finite = (features.abs() <= HUGE).all(dim=1) & (logits.abs() <= HUGE).all(dim=1)
        # zeros in place of an image that overflows: no table is asked where an infinite value lies
        ready = [torch.where(finite[:, None], each, 0.0) for each in (features, logits)]
        score = self.score(*ready)
        finite = finite & torch.isfinite(score)
        score = torch.where(finite, score, torch.nan)
        return logits, score, finite & (score >= self.limit(ready[1], threshold))

    def limit(self, logits: Tensor, threshold: Tensor | None = None) -> Tensor:
        """[1] or [N]: the smallest score that is accepted."""
        limits = self.threshold if threshold is None else threshold
        return limits if limits.shape[0] == 1 else limits.index_select(0, logits.argmax(dim=1))

    def features(self, images: Tensor) -> Tensor:
        """[N, M]: what reaches the head."""
        return self.tap.read(self.net, images)

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


def wrap_network(
    net: nn.Module | Classifier,
    detector: FittedSlots,
    threshold: Tensor,
    head: str | None = None,
    probe: Tensor | None = None,
) -> GuardedNet:
    """The guarded network; the head is the layer that the detector was fitted for, or the one named.

    A head that is linear and no nn.Linear is seen in a batch: in the `probe`, or in one that a Classifier has had.
    """
    classifier = net if isinstance(net, Classifier) else None
    if classifier is not None:
        head, net = head or classifier.head_name, classifier.net
    assert isinstance(net, nn.Module)
    inner = unwrap_network(net)
    unread: HeadError | None = None
    if probe is not None:
        classifier = Classifier(inner, head) if classifier is None else classifier
        try:
            classifier(probe[:2])
        except HeadError as error:  # a layer with the detector's weights may be there, and says more about them
            unread = error
    if classifier is not None and classifier.head_order is not None:
        own, name = classifier.head, classifier.head_name
        if own.fingerprint == detector.fingerprint and head in (None, name):
            return GuardedNet(inner, str(name), detector, threshold, MapCapture(own, classifier.head_order))
    layers = list_linears(inner)
    for name in layers if head is None else [head] if head in layers else []:
        with eval_mode(layers[name]):
            found = Head.view((layers[name].weight, layers[name].bias))
        if found.fingerprint == detector.fingerprint:
            return GuardedNet(inner, name, detector, threshold)
    if unread is not None:
        raise unread
    if probe is None and head is not None and head not in layers and head in dict(inner.named_modules()):
        raise InputError(
            f"the head {head!r} of {type(inner).__name__} is no nn.Linear layer, and which map in it gives the logits "
            "is seen in a batch: give one, wrap(..., probe=images), or a Classifier that has had one"
        )
    where = "no nn.Linear layer" if head is None else f"no nn.Linear layer {head!r}"
    raise InputError(
        f"{type(inner).__name__} has {where} with the weights of head {detector.fingerprint}, which this detector was "
        "fitted for; fit it again for this checkpoint, or give the network of that checkpoint (and wrap(..., "
        "probe=images), where its head is no nn.Linear)"
    )


def _shared_copy(net: nn.Module) -> nn.Module:
    """A copy of the modules with the same parameters and buffers."""
    shared: dict[int, Any] = {id(tensor): tensor for tensor in [*net.parameters(), *net.buffers()]}
    try:
        return copy.deepcopy(net, shared)
    except (TypeError, RuntimeError) as error:
        raise InputError(f"the modules of {type(net).__name__} cannot be copied: {error}") from None
