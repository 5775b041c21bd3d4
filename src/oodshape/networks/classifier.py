"""Any torch network whose logits come from an nn.Linear, read without changing it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from oodshape.core.errors import HeadError, InputError
from oodshape.networks.alone import alone
from oodshape.networks.fingerprint import network_fingerprint
from oodshape.networks.head import Head, Outputs

# The head of a network, kept for the next classifier around it: its fingerprint need not be hashed again.
_HEADS: WeakKeyDictionary[nn.Module, dict[str, Head]] = WeakKeyDictionary()


class Classifier:
    """A network seen as features, then a linear head: images -> Outputs(features, logits, head).

    The head is the nn.Linear whose output is the logits, found by value on the first two images of the
    first batch (or of `probe`), and held to that on every batch; `head="fc"` names it by hand. The network
    runs in eval mode and is left as it was: its modes, hooks, weights, buffers and gradients.

    >>> net = nn.Sequential(nn.Flatten(), nn.Linear(12, 4), nn.ReLU(), nn.Linear(4, 3), nn.Dropout())
    >>> classifier = Classifier(net)
    >>> outputs = classifier(torch.rand(5, 3, 2, 2))
    >>> outputs.features.shape, outputs.logits.shape
    (torch.Size([5, 4]), torch.Size([5, 3]))
    >>> classifier
    Classifier(Sequential, head='3')
    """

    def __init__(self, net: nn.Module, head: str | None = None, *, probe: Tensor | None = None) -> None:
        """A classifier around `net`; `probe` [N, ...] finds the head now instead of at the first batch."""
        # A compiled wrapper would bake the reading hook into its graph: run the network inside.
        self.net: nn.Module = getattr(net, "_orig_mod", net)
        self._name = head
        self._head: Head | None = None
        if head is not None:
            _linear(self.net, head)
        if probe is not None:
            self(probe[:2])

    def __call__(self, images: Tensor) -> Outputs:
        """[N, ...] images -> features [N, M] and logits [N, C] in float32, without gradients."""
        with alone(self.net), torch.inference_mode(False), torch.no_grad():
            images = self._ready(images)
            if self._name is None:
                self._name = _find(self.net, images[:2])
            layer = _linear(self.net, self._name)
            logits, calls = _read(self.net, images, [layer])
            reason = _why_not(layer, calls[layer], logits)
            if reason is not None:
                raise HeadError(f"head={self._name!r} does not give the logits of this batch: it {reason}; {_WAY_OUT}")
            return Outputs(calls[layer][0].features.float(), logits.float(), self.head)

    def logits(self, images: Tensor) -> Tensor:
        """[N, ...] images -> [N, C] logits that can be differentiated with respect to the images only."""
        with alone(self.net), torch.inference_mode(False), torch.enable_grad(), _eval_mode(self.net):
            images = self._ready(images)
            # Detached weights: a backward pass reaches the images and leaves no .grad on the network.
            weights = {name: weight.detach() for name, weight in self.net.named_parameters()}
            output = torch.func.functional_call(self.net, weights, (images.clone(),))
            return _logits(output, len(images)).float()

    @property
    def head_name(self) -> str | None:
        """The dotted name of the head inside the network; None until a batch has shown it."""
        return self._name

    @property
    def head(self) -> Head:
        """The head's weights as they are now: a float32 copy, the same object while they stay equal."""
        if self._name is None:
            raise InputError('the head is found at the first batch: run one, or give probe=... or head="..."')
        now, kept = _weights(_linear(self.net, self._name)), self._head or _HEADS.get(self.net, {}).get(self._name)
        if kept is None or not (_equal(kept.weight, now.weight) and _equal(kept.bias, now.bias)):
            kept = Head(now.weight.clone(), now.bias.clone())
            _HEADS.setdefault(self.net, {})[self._name] = kept
        self._head = kept
        return kept

    @property
    def fingerprint(self) -> str:
        """16 hex digits of the SHA-256 of all parameters and buffers: names, shapes, dtypes and bytes."""
        return network_fingerprint(self.net)

    def __repr__(self) -> str:
        """The network's type and the head's name."""
        return f"Classifier({type(self.net).__name__}, head={self._name!r})"

    def _ready(self, images: Tensor) -> Tensor:
        """The images on the network's device; floating images in its floating type, tokens unchanged."""
        if not isinstance(images, Tensor):
            raise InputError(f"images must be one tensor [N, ...], got {type(images).__name__}")
        if images.ndim < 2 or len(images) == 0:
            raise InputError(f"images must be a batch [N, ...] with N > 0, got shape {list(images.shape)}")
        for weight in self.net.parameters():
            if weight.is_floating_point():
                return images.to(weight.device, weight.dtype if images.is_floating_point() else None)
        return images


_WAY_OUT = (
    'name the right layer with head="..." (`oodshape fit --head ...`), or wrap the network so that it returns that '
    "layer's output"
)


@dataclass(frozen=True)
class _Call:
    """One run of a layer: the shape it gave; its input and output if those have one row per image."""

    shape: list[int]
    features: Tensor  # [N, M], else empty
    logits: Tensor  # [N, C], else empty


def _find(net: nn.Module, images: Tensor) -> str:
    """The name of the one nn.Linear whose output is the logits."""
    layers = linears(net)
    logits, calls = _read(net, images, list(layers.values()))
    reasons = {name: _why_not(layer, calls[layer], logits) for name, layer in layers.items()}
    found = [name for name, reason in reasons.items() if reason is None]
    if len(found) == 1:
        return found[0]
    count = f"{len(found)} nn.Linear layers give" if found else "no nn.Linear layer gives"
    notes = {name: reason or "gives the logits" for name, reason in reasons.items()}
    wide_first = sorted(layers, key=lambda name: layers[name].out_features != logits.shape[1])
    raise HeadError(
        f"{count} the logits {list(logits.shape)} of {type(net).__name__}; {_WAY_OUT}. "
        + _listing({name: layers[name] for name in wide_first}, notes)
    )


def _why_not(layer: nn.Linear, calls: list[_Call], logits: Tensor) -> str | None:
    """The reason why a layer's output is not the logits; None when it is."""
    if len(calls) != 1:
        return f"ran {len(calls)} times in one pass" if calls else "did not run"
    call = calls[0]
    if call.logits.shape != logits.shape:
        return f"gives shape {call.shape}, the logits have {list(logits.shape)}"
    eps = max(torch.finfo(t.dtype).eps for t in (layer.weight, call.logits, logits) if t.is_floating_point())
    if not _close(call.logits, logits, 4 * eps):
        return "gives other values than the logits (a softmax, a scale or an average follows it?)"
    # Loose enough for TF32 and half precision; a cosine head or a hook that rewrites is off by far more.
    if not _close(_weights(layer).logits(call.features.float()), logits, max(2e-3, 8 * eps)):
        return "does not compute input @ weight.T + bias (a subclass, or a hook that changes its output?)"
    return None


def _read(net: nn.Module, images: Tensor, layers: list[nn.Linear]) -> tuple[Tensor, dict[nn.Linear, list[_Call]]]:
    """One forward pass in eval mode: the [N, C] logits, and every call of the layers."""
    n = len(images)
    calls: dict[nn.Linear, list[_Call]] = {layer: [] for layer in layers}

    def record(layer: nn.Linear, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        features, shape = args[0] if args else kwargs["input"], list(output.shape)
        if output.numel() == n * layer.out_features:
            # Clones (of the images too, below), because a network may work in place.
            features, output = (tensor.detach().clone().reshape(n, -1) for tensor in (features, output))
        else:
            features = output = output.new_empty(0)
        calls[layer].append(_Call(shape, features, output))

    with _eval_mode(net), ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_hook(record, with_kwargs=True).remove)
        return _logits(net(images.clone()), n), calls


@contextmanager
def _eval_mode(net: nn.Module) -> Iterator[None]:
    """Eval mode for every module, then each module's own mode again."""
    modes = [(module, module.training) for module in net.modules()]
    # The flag itself: an overridden train() or eval() may fuse or merge weights.
    for module, _ in modes:
        module.training = False
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def _logits(output: Any, n: int) -> Tensor:
    """The finite [N, C] logits in a network's output."""
    logits = logits_of(output)
    if logits.numel() == 0 or (n > 1 and logits.shape[:1] != (n,)):
        raise InputError(f"the network must return one row of logits per image ({n}), got {list(logits.shape)}")
    logits = logits.reshape(n, -1)
    broken = torch.nonzero(~torch.isfinite(logits).all(dim=1)).flatten().tolist()
    if broken:
        raise InputError(
            f"the logits of {len(broken)} of {n} images (first: row {broken[0]}) hold NaN or infinite values;"
            " check these images and the checkpoint, or use float32"
        )
    return logits


def logits_of(output: Any) -> Tensor:
    """The tensor of logits in a network's output: itself, .logits, ["logits"], or a tuple's first."""
    logits = output
    if isinstance(output, Mapping) and "logits" in output:
        logits = output["logits"]
    elif hasattr(output, "logits"):
        logits = output.logits
    elif isinstance(output, (tuple, list)) and output:
        logits = output[0]
    if not isinstance(logits, Tensor):
        keys = f" with {list(output)}" if isinstance(output, Mapping) else ""
        raise InputError(
            f"the network must return logits, or an object with .logits; got {type(output).__name__}{keys}"
        )
    return logits


def linears(net: nn.Module) -> dict[str, nn.Linear]:
    """The nn.Linear layers of a network by dotted name, each once; the last, likely the head, first."""
    return {name: layer for name, layer in [*net.named_modules()][::-1] if isinstance(layer, nn.Linear)}


def _linear(net: nn.Module, name: str) -> nn.Linear:
    """The nn.Linear of this name."""
    try:
        layer = net.get_submodule(name)
        what = f"a {type(layer).__name__}, not an nn.Linear"
    except AttributeError:
        layer, what = None, f"not in {type(net).__name__}"
    if isinstance(layer, nn.Linear):
        return layer
    raise InputError(f"head={name!r} is {what}. " + _listing(linears(net), {}))


def _listing(layers: dict[str, nn.Linear], notes: dict[str, str]) -> str:
    """The first dozen layers, one per line with its shape and note."""
    lines = [
        f"  {name!r} ({layer.in_features} -> {layer.out_features}) {notes.get(name, '')}".rstrip()
        for name, layer in layers.items()
    ]
    more = [f"  and {len(lines) - 12} more"] if len(lines) > 12 else []
    return "\n".join(["Its nn.Linear layers:", *(lines[:12] or ["  none"]), *more])


def _weights(layer: nn.Linear) -> Head:
    """The layer's weights as they are now; may share their memory."""
    return Head.of((layer.weight, layer.bias))


def _equal(left: Tensor, right: Tensor) -> bool:
    return left.device == right.device and torch.equal(left, right)


def _close(left: Tensor, right: Tensor, tolerance: float) -> bool:
    """Equal up to a fraction of the largest value, so that the scale of the logits does not matter."""
    left, right = left.float(), right.float()
    return bool((left - right).abs().max() <= tolerance * right.abs().max())
