"""Find the linear map that computes a network's logits, by value."""

from __future__ import annotations

from typing import TypeGuard

import torch
from torch import Tensor, nn

from oodshape.core.errors import HeadError, InputError
from oodshape.networks.linear_maps import MapCall, only_logits, read_layers, read_maps

WAY_OUT = (
    'name the right layer with head="..." (`oodshape fit --head ...`), or wrap the network so that it returns that '
    "layer's output"
)
LENGTH = 1e-3  # how far the lengths of rows that were made equal may differ


def find_head_name(net: nn.Module, images: Tensor) -> str:
    """The name of the one nn.Linear whose output is the logits, or of the module in which a linear map gives them."""
    layers = list_linears(net)
    output, calls = read_layers(net, images, list(layers.values()))
    logits = only_logits(output, len(images))
    reasons = {name: why_not_head(calls[layer], logits) for name, layer in layers.items()}
    found = [name for name, reason in reasons.items() if reason is None]
    if len(found) == 1:
        find_last_map(calls[layers[found[0]]], logits)
        return found[0]
    if not found:
        _, maps = read_maps(net, images)
        several = {name for name, layer in layers.items() if len(calls[layer]) > 1}
        given = find_last_map([call for call in maps if call.where not in several], logits)
        if given is not None:
            return given.where
    count = f"{len(found)} nn.Linear layers give" if found else "no nn.Linear layer gives"
    notes = {name: reason or "gives the logits" for name, reason in reasons.items()}
    wide_first = sorted(layers, key=lambda name: layers[name].out_features != logits.shape[1])
    other = "" if found else ", and no other linear map in it does"
    raise HeadError(
        f"{count} the logits {list(logits.shape)} of {type(net).__name__}{other}; {WAY_OUT}. "
        + _list({name: layers[name] for name in wide_first}, notes)
    )


def find_last_map(maps: list[MapCall], logits: Tensor) -> MapCall | None:
    """The last of some linear maps that gives the logits; a cosine head is refused."""
    call = next((call for call in reversed(maps) if why_not_head([call], logits) is None), None)
    if call is not None and _is_cosine(call):
        where = f" in {call.where!r}" if call.where else ""
        raise HeadError(
            f"the logits come from a cosine head{where}: it brings the features and the rows of its weights to equal "
            "lengths, so that the logits are cosines, and how long a feature vector is, which shaping and energies "
            "read, never reaches them; train a linear head (nn.Linear) on the same features, or give features and "
            "such a head as arrays: Features.from_arrays"
        )
    return call


def _is_cosine(call: MapCall) -> bool:
    """Whether features and weights come in equal lengths, one of them in length 1 or both known from several rows."""
    rows, columns = call.features.float().norm(dim=1), call.weight.float().norm(dim=1)
    if not (_all_equal(rows) and _all_equal(columns)):
        return False
    ones = [bool(((lengths - 1).abs() <= LENGTH).all()) for lengths in (rows, columns)]
    return any(ones) if len(rows) > 1 else all(ones)


def _all_equal(lengths: Tensor) -> bool:
    return bool(lengths.max() - lengths.min() <= LENGTH * lengths.max())


def why_not_head(calls: list[MapCall], logits: Tensor) -> str | None:
    """The reason why a layer's output is not the logits; None when it is."""
    if len(calls) != 1:
        return f"ran {len(calls)} times in one pass" if calls else "did not run"
    call = calls[0]
    if call.logits.shape != logits.shape:
        return f"gives shape {call.shape}, the logits have {list(logits.shape)}"
    if logits.is_meta:  # has no values to look at
        return None
    eps = max(torch.finfo(t.dtype).eps for t in (call.weight, call.logits, logits) if t.is_floating_point())
    if not _close(call.logits, logits, 4 * eps):
        return "gives other values than the logits (a softmax, a scale or an average follows it?)"
    # Loose enough for TF32 and half precision; a cosine head or a hook that rewrites is off by far more.
    if not _close(call.head.logits(call.features.float()), logits, max(2e-3, 8 * eps)):
        return "does not compute input @ weight.T + bias (a subclass, or a hook that changes its output?)"
    return None


def list_linears(net: nn.Module) -> dict[str, nn.Linear]:
    """The nn.Linear layers of a network by dotted name, each once; the last, likely the head, first."""
    return {name: layer for name, layer in [*net.named_modules()][::-1] if is_layer(layer)}


def is_layer(module: nn.Module | None) -> TypeGuard[nn.Linear]:
    """Whether a module's features are its input: an nn.Linear without a hook that may change what it is given."""
    return isinstance(module, nn.Linear) and not module._forward_pre_hooks


def find_module(net: nn.Module, name: str) -> nn.Module:
    """The module of this name, or an error that lists the linear layers."""
    try:
        return net.get_submodule(name)
    except AttributeError:
        raise InputError(f"head={name!r} is not in {type(net).__name__}. " + _list(list_linears(net), {})) from None


def _list(layers: dict[str, nn.Linear], notes: dict[str, str]) -> str:
    """The first dozen layers, each with its shape and note."""
    found = [
        f"{name!r} ({layer.in_features} -> {layer.out_features}) {notes.get(name, '')}".rstrip()
        for name, layer in layers.items()
    ]
    more = [f"and {len(found) - 12} more"] if len(found) > 12 else []
    return f"Its nn.Linear layers: {'; '.join([*found[:12], *more]) or 'none'}"


def _close(left: Tensor, right: Tensor, tolerance: float) -> bool:
    """Equal up to a fraction of the largest value, so that the scale of the logits does not matter."""
    left, right = left.float(), right.float()
    return bool((left - right).abs().max() <= tolerance * right.abs().max())
