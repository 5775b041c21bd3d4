"""One forward pass of a network, and the linear maps in it, whatever they are called: seen as they run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from oodshape.core.errors import InputError, NotTaken
from oodshape.core.files import one_line
from oodshape.networks.head import Head

Enlarge = Mapping[int, float]  # by how many linear maps run before one: what its input is multiplied by
HUGE = 1e18  # a larger feature or logit is an overflow: its square is infinite in float32


@dataclass(frozen=True)
class MapCall:
    """A linear map that ran once: its weights, the shape it gave; input and output if there is a row per image."""

    shape: list[int]
    weight: Tensor  # [C, M]
    bias: Tensor | None  # [C]
    features: Tensor  # [N, M], else empty
    logits: Tensor  # [N, C], else empty
    where: str = ""  # the module in whose forward it ran
    places: int = -1  # where the channels are in a map that runs at many places of an image
    order: int = 0  # how many linear maps the reader saw before it

    @cached_property
    def head(self) -> Head:
        """The weights; may share their memory."""
        return Head.view((self.weight, self.bias))


class LinearMapReader(TorchFunctionMode):
    """Sees the linear maps that run, and a number or a vector that is applied to what they gave."""

    def __init__(self, n: int, enlarge: Enlarge) -> None:
        """Of a batch of n images."""
        super().__init__()
        self.n, self.where, self.enlarge, self._seen = n, "", enlarge, 0
        self.calls: list[MapCall] = []
        self._outputs: dict[int, tuple[Tensor, MapCall]] = {}  # the tensor too, so that its id stays its own

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The function's own result, looked at."""
        kwargs = kwargs or {}
        seen = _MAPS[function](*args, **kwargs) if function in _MAPS else None
        if seen is not None and self._seen in self.enlarge:
            place, factor = 1 if function is torch.addmm else 0, self.enlarge[self._seen]
            args = tuple(each * factor if at == place else each for at, each in enumerate(args))
            seen = _MAPS[function](*args, **kwargs)
        before = None
        if function in _CHANGES and len(args) == 2 and not kwargs:
            before = self._changed(_CHANGES[function], *args)
        output = function(*args, **kwargs)
        if isinstance(output, Tensor) and (seen is not None or before is not None):
            call = self._again(before, output) if seen is None else self._call(output, *seen)
            if call is not None:
                self.calls.append(call)
                self._outputs[id(output)] = output, call
        self._seen += seen is not None
        return output

    def _call(self, output: Tensor, inputs: Tensor, weight: Tensor, bias: Tensor | None, places: int) -> MapCall | None:
        """The map as one of an image's features: of their average, where it runs at many places of an image."""
        if weight.ndim != 2 or inputs.ndim < 2 or len(inputs) != self.n or len(output) != self.n:
            return None
        features, logits = (_averaged(each.detach(), places) for each in (inputs, output))
        if features.shape != (self.n, weight.shape[1]) or logits.shape != (self.n, weight.shape[0]):
            return None
        held = None if bias is None else bias.detach()
        seen = features.clone(), logits.clone(), self.where, places, self._seen
        return MapCall(list(output.shape), weight.detach(), held, *seen)

    def _changed(self, change: Callable[..., Any], left: Any, right: Any) -> MapCall | None:
        for one, other in ((left, right), (right, left)):
            known = self._outputs.get(id(one))
            if known is not None and known[0] is one:
                changed: MapCall | None = change(known[1], other, one is left)
                return changed
        return None

    def _again(self, changed: MapCall | None, output: Tensor) -> MapCall | None:
        if changed is None or list(output.shape) != changed.shape:
            return None
        return replace(changed, logits=_averaged(output.detach(), changed.places).clone(), where=self.where)


class InputCapture(TorchFunctionMode):
    """Keeps what one linear map of a forward pass is given, averaged over the places of an image: [N, M].

    Nothing but the list is written to, so that torch.compile and torch.export can follow.
    """

    def __init__(self, order: int, kept: list[Tensor | None]) -> None:
        """Of the map that `order` others run before; its features become the last entry of the list."""
        super().__init__()
        self.order, self.kept = order, kept

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """The function's own result."""
        kwargs = kwargs or {}
        if function in _MAPS and len(self.kept) <= self.order:
            seen = _MAPS[function](*args, **kwargs)
            if seen is not None:
                # A clone, because a network may work in place.
                self.kept.append(_averaged(seen[0], seen[3]).clone() if len(self.kept) == self.order else None)
        return function(*args, **kwargs)


def _averaged(values: Tensor, places: int) -> Tensor:
    """[N, M]: the mean over the places of an image, which lie behind the channels (1) or before them (-1)."""
    if values.ndim == 2:
        return values
    return values.flatten(2).mean(2) if places == 1 else values.flatten(1, -2).mean(1)


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> tuple[Any, ...]:
    return input, weight, bias, -1


def _product(input: Tensor, other: Tensor) -> tuple[Any, ...] | None:
    return (input, other.T, None, -1) if isinstance(other, Tensor) and other.ndim == 2 else None


def _sum(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: float = 1, alpha: float = 1) -> tuple[Any, ...] | None:
    return (mat1, mat2.T, input, -1) if beta == alpha == 1 and input.ndim == 1 else None


def _convolution(input: Tensor, weight: Tensor, bias: Tensor | None = None, *more: Any, **named: Any) -> Any:
    """A map at every place: a kernel of one pixel, a stride of one, no groups."""
    given = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1}
    said = given | dict(zip(given, more, strict=False)) | named
    unmoved = _all(said["stride"], 1) and (said["padding"] == "valid" or _all(said["padding"], 0))
    plain = set(weight.shape[2:]) == {1} and said["groups"] == 1 and unmoved
    return (input, weight.flatten(1), bias, 1) if plain else None


def _all(value: Any, wanted: int) -> bool:
    return all(each == wanted for each in (value if isinstance(value, (tuple, list)) else (value,)))


def _scaled(call: MapCall, by: Any, first: bool) -> MapCall | None:
    by = _number(by)
    if by is None:
        return None
    return replace(call, weight=call.weight * by, bias=None if call.bias is None else call.bias * by)


def _divided(call: MapCall, by: Any, first: bool) -> MapCall | None:
    by = _number(by)
    return _scaled(call, 1 / by, first) if by is not None and first else None


def _moved(call: MapCall, by: Any, first: bool) -> MapCall | None:
    """With a vector added; one of an image's own would have a row per image."""
    if not isinstance(by, Tensor) or by.shape != call.weight.shape[:1] or len(call.shape) != 2:
        return None
    return replace(call, bias=by.detach() if call.bias is None else call.bias + by.detach())


def _number(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().reshape(()) if value.numel() == 1 and value.ndim < 2 else None
    return value if isinstance(value, (int, float)) else None


_MAPS: dict[Any, Callable[..., Any]] = {
    **dict.fromkeys((nn.functional.linear, torch.ops.aten.linear.default), _linear),  # aten: of torch.export archives
    torch.addmm: _sum,
    **dict.fromkeys((torch.conv1d, torch.conv2d, torch.ops.aten.conv2d.default), _convolution),
    **dict.fromkeys((torch.matmul, torch.mm, Tensor.matmul, Tensor.mm), _product),
}
_CHANGES: dict[Any, Callable[[MapCall, Any, bool], MapCall | None]] = {
    **dict.fromkeys((torch.mul, Tensor.mul, Tensor.mul_), _scaled),  # torch's names for the operators, too
    **dict.fromkeys((torch.div, Tensor.div, Tensor.div_), _divided),
    **dict.fromkeys((torch.add, Tensor.add, Tensor.add_), _moved),
}


def read_layers(
    net: nn.Module, images: Tensor, layers: list[nn.Linear], factor: float = 1.0
) -> tuple[Any, dict[nn.Linear, list[MapCall]]]:
    """One forward pass in eval mode: what the network gives, and every call of the layers, their input multiplied."""
    n = len(images)
    calls: dict[nn.Linear, list[MapCall]] = {layer: [] for layer in layers}

    def record(layer: nn.Linear, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        features, shape = args[0] if args else kwargs["input"], list(output.shape)
        if output.numel() == n * layer.out_features:
            # Clones (of the images too, below), because a network may work in place.
            features, output = (tensor.detach().clone().reshape(n, -1) for tensor in (features, output))
        else:
            features = output = output.new_empty(0)
        calls[layer].append(MapCall(shape, layer.weight, layer.bias, features, output))

    with eval_mode(net), ExitStack() as hooks:
        for layer in layers:
            if factor != 1.0:
                enlarge = layer.register_forward_pre_hook(lambda _, args: tuple(each * factor for each in args))
                hooks.callback(enlarge.remove)
            hooks.callback(layer.register_forward_hook(record, with_kwargs=True).remove)
        return _through(net, images), calls


def read_maps(
    net: nn.Module, images: Tensor, inside: str | None = None, enlarge: Enlarge | None = None
) -> tuple[Any, list[MapCall]]:
    """One forward pass in eval mode: what the network gives, and every linear map in it, or inside one module.

    Whatever the layers are called: functions, 1 x 1 convolutions and products of matrices are seen as they run. The
    input of the maps in `enlarge` is multiplied.
    """
    reader, running = LinearMapReader(len(images), enlarge or {}), list[str]()

    def enter(name: str) -> None:
        running.append(name)
        reader.where = name
        if len(running) == 1:
            reader.__enter__()  # type: ignore[no-untyped-call]

    def leave(*_: Any) -> None:
        running.pop()
        reader.where = running[-1] if running else ""
        if not running:
            reader.__exit__(None, None, None)  # type: ignore[no-untyped-call]

    modules = {name: module for name, module in net.named_modules() if inside is None or name == inside}
    with eval_mode(net), ExitStack() as hooks:
        hooks.callback(lambda: [*map(leave, [*running])])  # of a forward pass that failed
        for name, module in modules.items():
            hooks.callback(module.register_forward_pre_hook(lambda *_, name=name: enter(name)).remove)
            hooks.callback(module.register_forward_hook(leave).remove)
        return _through(net, images), reader.calls


def _through(net: nn.Module, images: Tensor) -> Any:
    with name_shape_errors(images):
        return net(images.clone())


@contextmanager
def name_shape_errors(images: Tensor) -> Iterator[None]:
    """Turn what a network raises for images that it cannot take into one error that names their shape and type."""
    try:
        yield
    except (InputError, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # the network's own code: layers fail in whatever way
        raise NotTaken(
            f"the network fails on {images.dtype} images of shape {list(images.shape[1:])} with "
            f"{type(error).__name__}: {one_line(error)}; preprocess them as in training, with its size "
            "(--preprocessing) and channels"
        ) from error


@contextmanager
def eval_mode(net: nn.Module) -> Iterator[None]:
    """Eval mode for every module, then each module's own mode again."""
    modes = [(module, module.training) for module in net.modules()]
    # The flag itself: an overridden train() or eval() may fuse or merge weights.
    for module, training in modes:
        if training:  # an nn.Module takes its time to set an attribute
            module.training = False
    try:
        yield
    finally:
        for module, training in modes:
            if module.training != training:
                module.training = training


def list_outputs(output: Any) -> list[Tensor]:
    """The tensors in a network's output that may be its logits: itself, .logits, ["logits"], or those of a tuple."""
    if isinstance(output, Mapping) and "logits" in output:
        output = output["logits"]
    elif hasattr(output, "logits"):
        output = output.logits
    elif isinstance(output, (tuple, list)):
        found = [each for each in output if isinstance(each, Tensor)]
        if found:
            return found
    if not isinstance(output, Tensor):
        keys = f" with {list(output)}" if isinstance(output, Mapping) else ""
        raise InputError(f"the network must return logits or an object with .logits, got {type(output).__name__}{keys}")
    return [output]


def logit_candidates(output: Any, n: int) -> list[tuple[int, Tensor]]:
    """What may be the logits in a network's output; the first has to be whole, others may be anything."""
    first, *others = list_outputs(output)
    rows = [(place, each) for place, each in enumerate(others, 1) if each.shape[:1] == (n,) and each.ndim > 1]
    return [(0, check_logits(first, n)), *((place, each.reshape(n, -1)) for place, each in rows)]


def only_logits(output: Any, n: int) -> Tensor:
    """The logits, where the network gives one tensor, or they and their softmax; others are an error that asks which.

    YOLO's classifiers return (probabilities, logits).
    """
    found = list_outputs(output)
    if len(found) == 2 and not found[0].is_meta and found[0].shape == found[1].shape:
        found = [each for each, other in (found, found[::-1]) if not _is_softmax(each, other)] or found
    if len(found) > 1:
        shapes = " and ".join(str(list(each.shape)) for each in found)
        raise InputError(
            f"the network returns {len(found)} tensors, {shapes}: which one are the logits? Name the layer that gives "
            'them with head="..." (`oodshape fit --head ...`), or wrap the network so that it returns them alone; for '
            "a .pt2 archive, export such a network"
        )
    if sum(size > 1 for size in found[0].shape[1:]) > 1:
        raise InputError(
            f"the network returns {list(found[0].shape)}, values at many places of an image (segmentation?): "
            "logits must be one row per image, [N, C]; wrap the network so that it returns those of the whole image"
        )
    return check_logits(found[0], n)


def _is_softmax(values: Tensor, logits: Tensor) -> bool:
    return logits.ndim == 2 and torch.allclose(values.float(), logits.float().softmax(dim=1), atol=1e-5)


def check_logits(logits: Tensor, n: int) -> Tensor:
    """[N, C] logits, one row per image and none larger than `HUGE`, or an error."""
    if logits.numel() == 0 or (n > 1 and logits.shape[:1] != (n,)):
        raise InputError(f"the network must return one row of logits per image ({n}), got {list(logits.shape)}")
    logits = logits.reshape(n, -1)
    if not logits.is_meta:  # which has no values to look at
        check_net_input(logits, "logits")
    return logits


def check_net_input(values: Tensor, name: str) -> None:
    """Refuse images with NaN, infinite or huge values, naming the first."""
    broken = torch.nonzero(~(values.abs() <= HUGE).all(dim=1)).flatten().tolist()
    if broken:
        raise InputError(
            f"the {name} of {len(broken)} of {len(values)} images (first: row {broken[0]}) hold NaN, infinite or huge "
            "values; check these images and the checkpoint, or use float32"
        )
