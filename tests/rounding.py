"""Simulated rounding: `pytest --rounding SEED` computes what another processor, batch size or thread count might.

The order in which a processor adds up decides the last bits of matrix products, convolutions and long sums. Under this
mode they are other bits on any machine. Each result moves by up to 2^-23 (float64: 2^-52) times the sum of the absolute
values of its terms, which for products is at most row norm x column norm. The moves are a function of the seed, the
operation, the shapes and the position: the same call gives the same bits again, the same row in another batch does not.

Sums of whole numbers are exact on every machine and stay as they are. Tracing (torch.compile, torch.export, torch.jit)
sees none of this; a graph that torch.compile or torch.export made is covered when it runs.

Not covered: numpy, scipy and scikit-learn; the numba kernels; onnxruntime; code that torch's inductor compiles, except
for its calls of matrix products; subprocesses (tests that compare bits with one are marked `other_process`);
decompositions (eigenvalues, Cholesky), except through the products that they are given; what a test module computes
when it is imported.
"""

from __future__ import annotations

import functools
import math
import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map_only

PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "matmul", "linear", "einsum"}
PRODUCTS |= {"convolution", "conv1d", "conv2d", "conv3d", "convolution_backward"}
ATTENTION = {"scaled_dot_product_attention", "_scaled_dot_product_flash_attention_for_cpu"}
SUMS = {"sum", "nansum", "mean", "cumsum"}
# These end in more than the sum: a root, a quotient or a logarithm. Their results move by so much of themselves.
NORMS = {"linalg_vector_norm", "norm", "var", "std", "var_mean", "std_mean", "_softmax", "softmax", "native_layer_norm"}
LOGARITHMS = {"logsumexp", "logcumsumexp", "_log_softmax", "log_softmax"}  # and by one unit: an error inside the log
LONG = 32  # elements of a sum; shorter ones are mostly added up in one order


class Rounding(TorchDispatchMode):
    """Move the results of products and long sums inside the block, in this thread."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.seed = seed

    @classmethod
    def is_infra_mode(cls) -> bool:
        """True: torch.compile refuses to run under other modes."""
        return True

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = op.overloadpacket.__name__
        function = name.rstrip("_")
        if function not in PRODUCTS | ATTENTION | SUMS | NORMS | LOGARITHMS or not _is_moved(function, args, kwargs):
            return op(*args, **kwargs)
        written = kwargs.get("out", args[0] if name != function else None)  # of an out= or in-place form
        shapes = [tuple(each.shape) for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
        limits = _limits(function, args, {key: value for key, value in kwargs.items() if key != "out"})
        found = op(*args, **kwargs)
        limits = limits if limits is not None else found
        key = f"{self.seed} {function} {shapes}"
        if not isinstance(found, tuple):
            moved = _move(found, limits, function, key)
            return moved if written is None else written.copy_(moved)
        return tuple(_move(*each, function, f"{key} {i}") for i, each in enumerate(zip(found, limits, strict=True)))


def _is_moved(function: str, args: Any, kwargs: Any) -> bool:
    tensors = [each for each in tree_leaves((args, kwargs)) if isinstance(each, Tensor)]
    if any(type(each) not in (Tensor, nn.Parameter) or not each.is_cpu for each in tensors):  # a tracer's
        return False
    if torch.compiler.is_compiling() or not all(each.is_floating_point() and each.numel() for each in tensors):
        return False
    if function in PRODUCTS | ATTENTION:
        return not all(_is_whole(each) for each in tensors)
    return _length(function, args, kwargs) >= LONG and not (function in SUMS and _is_whole(tensors[0]))


def _is_whole(values: Tensor) -> bool:
    """Whether all are whole numbers, whose sums and products are exact."""
    return all(bool((part == part.trunc()).all()) for part in (values[:1] if values.ndim else values, values))


def _length(function: str, args: Any, kwargs: Any) -> int:
    """How many elements one sum has."""
    values: Tensor = args[0]
    dims = args[1] if len(args) > 1 and not isinstance(args[1], torch.dtype) else kwargs.get("dim")
    if function == "native_layer_norm":
        return math.prod(dims)
    if function in ("linalg_vector_norm", "norm"):  # their second argument is the order of the norm
        dims = args[2] if len(args) > 2 else kwargs.get("dim")
    elif function in ("var", "std", "var_mean", "std_mean") and isinstance(dims, bool):
        dims = None
    if dims is None or dims == []:
        return values.numel()
    if not values.ndim:
        return 1
    return math.prod(values.shape[dim] for dim in ([dims] if isinstance(dims, int) else dims))


def _limits(function: str, args: Any, kwargs: Any) -> Any:
    """The sums of the absolute values of all terms, before an in-place form overwrites them; None: the results."""
    if function in NORMS | LOGARITHMS:
        return None
    kwargs = {key: abs(value) if key in ("alpha", "beta") else value for key, value in kwargs.items()}
    if function in ATTENTION:
        args = (args[0], args[1], args[2].abs(), *args[3:])
    else:
        args, kwargs = tree_map_only(Tensor, Tensor.abs, (args, kwargs))
    return getattr(torch.ops.aten, function)(*args, **kwargs)


def _move(found: Any, limit: Any, function: str, key: str) -> Any:
    if not isinstance(found, Tensor) or not found.is_floating_point():
        return found
    wide = torch.float64 if found.dtype == torch.float64 else torch.float32
    unit = 2.0**-52 if found.dtype == torch.float64 else 2.0**-23
    generator = torch.Generator().manual_seed(zlib.crc32(f"{key} {wide}".encode()))
    share = torch.rand(found.shape, generator=generator, dtype=wide).mul_(2 * unit).sub_(unit)
    size = limit.detach().to(wide).abs() + (function in LOGARITHMS)
    return (found + share.mul_(size).nan_to_num_(0, 0, 0)).to(found.dtype)


@contextmanager
def rounding(seed: int) -> Iterator[None]:
    """Simulate rounding in this thread and in those that it starts; torch.jit.trace stays out of it."""
    with ExitStack() as stack:
        _replace(stack, threading.Thread, "_bootstrap_inner", lambda: Rounding(seed))  # `run` is often overridden
        _replace(stack, torch.jit, "trace", _disable_current_modes)
        stack.enter_context(Rounding(seed))
        yield


def _replace(stack: ExitStack, owner: Any, name: str, around: Callable[[], Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        with around():
            return original(*args, **kwargs)

    setattr(owner, name, wrapped)
    stack.callback(setattr, owner, name, original)
