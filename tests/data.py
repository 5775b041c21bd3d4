"""Small feature sets with a head that means something: impacts add up instead of cancelling."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial

import numpy as np
import torch

from oodshape import Features


def arrays(
    n: int = 300, width: int = 40, classes: int = 7, *, signed: bool = False, seed: int = 0
) -> tuple[np.ndarray, tuple[np.ndarray, np.ndarray]]:
    """([n, width] float32 features, (weight, bias)): each class raises the features its weights look at."""
    rng = np.random.default_rng(12345)  # one head, whatever the sample
    weight = rng.normal(size=(classes, width)).astype(np.float32)
    bias = rng.normal(scale=0.1, size=classes).astype(np.float32)
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(n, width)) + 0.8 * weight[rng.integers(classes, size=n)]
    z = z if signed else np.maximum(z, 0)
    return z.astype(np.float32), (weight, bias)


def features(n: int = 300, *, half: bool = False, **settings) -> Features:
    """The same as Features."""
    z, head = arrays(n, **settings)
    return Features.from_arrays(z.astype(np.float16) if half else z, head)


def proxy(n: int = 200, *, signed: bool = False) -> Features:
    """Features without content: the values of each image shuffled among its features."""
    z, head = arrays(n, signed=signed, seed=9)
    return Features.from_arrays(np.random.default_rng(0).permuted(z, axis=1), head)


@contextmanager
def float64_by_default():
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


CALLERS = [partial(torch.autocast, "cpu", dtype=torch.bfloat16), float64_by_default]  # what a program may have set
