"""Where a network runs, and in which precision: what --device and --precision name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import cast, get_args

import torch

from oodshape.core.errors import InputError
from oodshape.core.options import Precision as Precision

PRECISIONS: tuple[str, ...] = get_args(Precision)
ACCELERATORS = ("cuda", "xpu", "mps")  # in the order in which `auto` looks for them
AUTO = "auto"
DEVICES = "auto, cpu, cuda, cuda:N, mps or xpu"


@contextmanager
def without_autocast() -> Iterator[None]:
    """Leave an autocast of the caller: a threshold holds for scores of the precision that it was computed in."""
    with ExitStack() as left:
        for kind in filter(torch.is_autocast_enabled, ("cpu", *ACCELERATORS)):
            left.enter_context(torch.autocast(kind, enabled=False))
        yield


def find_device(name: str) -> torch.device:
    """The device of a name; `auto` is the accelerator that is here, else the CPU.

    >>> find_device("cpu")
    device(type='cpu')
    """
    if name == AUTO:
        here = next((kind for kind in ACCELERATORS if _count(kind)), "cpu")
        return torch.device(here) if here in ("cpu", "mps") else torch.device(here, 0)
    if name == "cpu":
        return torch.device("cpu")
    found = re.fullmatch(r"(cuda|xpu|mps)(?::(\d+))?", name)
    if found is None:
        raise InputError(f"device must be {DEVICES}, got {name!r}")
    kind, count, number = found[1], _count(found[1]), int(found[2] or 0)
    if count == 0:
        raise InputError(f"torch {torch.__version__} sees no {kind} device here, but got {name!r}; use auto or cpu")
    if number >= count:
        raise InputError(f"there are {count} {kind} devices, {kind}:0 to {kind}:{count - 1}, but got {name!r}")
    return torch.device(kind) if kind == "mps" else torch.device(kind, number)


def describe_device(device: torch.device) -> str:
    """A device with the name that its driver gives it."""
    if device.type in ("cuda", "xpu"):
        return f"{device} ({getattr(torch, device.type).get_device_name(device)})"
    return str(device)


def check_precision(name: str) -> Precision:
    """The precision itself, or an error that lists them."""
    if name not in PRECISIONS:
        raise InputError(f"precision must be {', '.join(PRECISIONS[:-1])} or {PRECISIONS[-1]}, got {name!r}")
    return cast(Precision, name)


def _count(kind: str) -> int:
    """How many devices of a kind torch sees."""
    if kind == "mps":
        return int(torch.backends.mps.is_available())
    library = getattr(torch, kind, None)
    return int(library.device_count()) if library is not None and library.is_available() else 0
