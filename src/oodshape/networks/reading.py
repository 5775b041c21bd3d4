"""One forward pass of a network, and what its linear maps were given and gave."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from oodshape.core.errors import InputError, NotTaken
from oodshape.core.reading import one_line
from oodshape.networks.linear_maps import Call, Reader


def read_layers(net: nn.Module, images: Tensor, layers: list[nn.Linear]) -> tuple[Any, dict[nn.Linear, list[Call]]]:
    """One forward pass in eval mode: what the network gives, and every call of the layers."""
    n = len(images)
    calls: dict[nn.Linear, list[Call]] = {layer: [] for layer in layers}

    def record(layer: nn.Linear, args: tuple[Any, ...], kwargs: dict[str, Any], output: Tensor) -> None:
        features, shape = args[0] if args else kwargs["input"], list(output.shape)
        if output.numel() == n * layer.out_features:
            # Clones (of the images too, below), because a network may work in place.
            features, output = (tensor.detach().clone().reshape(n, -1) for tensor in (features, output))
        else:
            features = output = output.new_empty(0)
        calls[layer].append(Call(shape, layer.weight, layer.bias, features, output))

    with eval_mode(net), ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_hook(record, with_kwargs=True).remove)
        return _through(net, images), calls


def read_maps(net: nn.Module, images: Tensor, inside: str | None = None) -> tuple[Any, list[Call]]:
    """One forward pass in eval mode: what the network gives, and every linear map in it, or inside one module.

    Whatever the layers are called: functions, 1 x 1 convolutions and products of matrices are seen as they run.
    """
    reader, running = Reader(len(images)), list[str]()

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
    """What the network gives; images that it cannot take are an error that says which."""
    try:
        return net(images.clone())
    except (InputError, torch.OutOfMemoryError, MemoryError):
        raise
    except Exception as error:  # the network's own code: layers fail in whatever way
        raise NotTaken(
            f"the network fails on images of shape {list(images.shape[1:])} with {type(error).__name__}: "
            f"{one_line(error)}; prepare them as it was trained, in its size (--resize, --crop) and with its channels"
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


def outputs_of(output: Any) -> list[Tensor]:
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
        raise InputError(
            f"the network must return logits, or an object with .logits; got {type(output).__name__}{keys}"
        )
    return [output]


def candidates(output: Any, n: int) -> list[tuple[int, Tensor]]:
    """What may be the logits in a network's output; the first has to be whole, others may be anything."""
    first, *others = outputs_of(output)
    rows = [(place, each) for place, each in enumerate(others, 1) if each.shape[:1] == (n,) and each.ndim > 1]
    return [(0, finite_rows(first, n)), *((place, each.reshape(n, -1)) for place, each in rows)]


def only_logits(output: Any, n: int) -> Tensor:
    """The logits, where the network gives one tensor; several are an error that asks which."""
    found = outputs_of(output)
    if len(found) > 1:
        shapes = " and ".join(str(list(each.shape)) for each in found)
        raise InputError(
            f"the network returns {len(found)} tensors, {shapes}: which one are the logits? Name the layer that gives "
            'them with head="..." (`oodshape fit --head ...`), or wrap the network so that it returns them alone'
        )
    return finite_rows(found[0], n)


def logits_of(output: Any) -> Tensor:
    """The tensor of logits in a network's output: the first that it may be."""
    return outputs_of(output)[0]


def finite_rows(logits: Tensor, n: int) -> Tensor:
    """[N, C] logits, one row per image and all finite, or an error."""
    if logits.numel() == 0 or (n > 1 and logits.shape[:1] != (n,)):
        raise InputError(f"the network must return one row of logits per image ({n}), got {list(logits.shape)}")
    logits = logits.reshape(n, -1)
    if logits.is_meta:  # has no values to look at
        return logits
    broken = torch.nonzero(~torch.isfinite(logits).all(dim=1)).flatten().tolist()
    if broken:
        raise InputError(
            f"the logits of {len(broken)} of {n} images (first: row {broken[0]}) hold NaN or infinite values;"
            " check these images and the checkpoint, or use float32"
        )
    return logits
