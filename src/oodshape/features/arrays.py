"""A user's own arrays of features, labels and predictions, checked."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor

from oodshape.core.errors import InputError

FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64, "float16", "float32", "float64")


def matrix(features: Any, width: int) -> Any:
    """[images, features] as they were given, a tensor or an array; what cannot be features for a head is refused."""
    values = features.detach() if isinstance(features, Tensor) else np.asanyarray(features)
    if values.ndim != 2:
        raise InputError(f"features must have shape [images, features], got {list(values.shape)}")
    if 0 in values.shape:
        raise InputError(f"features are empty: shape {list(values.shape)}")
    if values.shape[1] != width:
        raise InputError(
            f"features have {values.shape[1]} columns, but the head reads {width}; are they from another network?"
        )
    if (values.dtype if isinstance(values, Tensor) else values.dtype.name) not in FLOATS:
        raise InputError(f"features must be float16, float32 or float64, got {values.dtype}")
    return values


def integers(values: Any, name: str, n: int, classes: int | None = None) -> Tensor | None:
    """[n] int64, or None where none are given; `classes` bounds them."""
    if values is None:
        return None
    array = values.detach().cpu().numpy() if isinstance(values, Tensor) else np.asarray(values)
    if array.shape != (n,) or array.dtype.kind not in "iu":
        raise InputError(f"{name} must be {n} integers, one per image, got {array.dtype}{list(array.shape)}")
    if classes is not None and (array.min() < 0 or array.max() >= classes):
        raise InputError(f"{name} must lie in 0..{classes - 1}, got {array.min()}..{array.max()} for {classes} classes")
    return torch.from_numpy(array.astype(np.int64))
