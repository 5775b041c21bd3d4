"""Batches of tensors that a network takes as they are, from a data loader or whatever gives them: prepared=True."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.images.in_memory import KEYS, as_label, parted

ACCEPTED = (
    "prepared=True takes a DataLoader or any iterable of batches: tensors [N, ...] that the network takes as they are, "
    'pairs (tensor, labels), or dictionaries with "pixel_values" or "image"; or a data set that gives one such image'
)
SIZE = 32  # images of a batch that is made here


class Prepared(NamedTuple):
    """One batch: what the network takes, and a label for each image (-1: none)."""

    images: Tensor  # [N, ...]
    labels: NDArray[np.int64]  # [N]


def prepared_batches(images: Any, size: int = SIZE) -> Iterator[Prepared]:
    """The batches one by one; a tensor of all images, and a data set of single ones, are cut into batches of `size`.

    >>> [len(batch.images) for batch in prepared_batches(torch.zeros(5, 3, 8, 8), 2)]
    [2, 2, 1]
    """
    check_prepared(images)
    if isinstance(images, Tensor):
        return (_batch(images[first : first + size], 0) for first in range(0, len(images), size))
    if not isinstance(images, (list, tuple)) and hasattr(images, "__getitem__") and hasattr(images, "__len__"):
        return _of_single(images, size)
    return (_batch(batch, place) for place, batch in enumerate(images))


def check_prepared(images: Any) -> None:
    """Refuse what cannot be batches, before any work."""
    if isinstance(images, (str, bytes, Mapping)) or not (
        isinstance(images, Iterable) or hasattr(images, "__getitem__")
    ):
        raise InputError(f"{ACCEPTED}; got {type(images).__name__}")
    if isinstance(images, Tensor) and images.ndim < 2:
        raise InputError(f"{ACCEPTED}; got a tensor {list(images.shape)}")
    if isinstance(images, Sized) and len(images) == 0:
        raise InputError(f"{ACCEPTED}; got an empty {type(images).__name__}")


def _batch(batch: Any, place: int) -> Prepared:
    labels: Any = None
    if isinstance(batch, Mapping):
        key = next((key for key in reversed(KEYS) if key in batch), None)
        batch, labels = (None, None) if key is None else (batch[key], batch.get("label", batch.get("labels")))
    elif isinstance(batch, (tuple, list)) and 1 <= len(batch) <= 2:
        batch, labels = batch[0], batch[1] if len(batch) == 2 else None
    if not isinstance(batch, Tensor) or batch.ndim < 2 or len(batch) == 0:
        what = f"a tensor {list(batch.shape)}" if isinstance(batch, Tensor) else type(batch).__name__
        raise InputError(f"{ACCEPTED}; got {what} as batch {place}")
    return Prepared(batch, _labels(labels, len(batch)))


def _labels(labels: Any, n: int) -> NDArray[np.int64]:
    """[N]: whole numbers, one per image, as they are; anything else is no label."""
    none = np.full(n, -1, np.int64)
    try:
        listed = list(labels) if labels is not None else []
    except TypeError:
        return none
    return np.array([as_label(label) for label in listed], np.int64) if len(listed) == n else none


def _of_single(images: Any, size: int) -> Iterator[Prepared]:
    """The batches of a data set whose every sample is one prepared image."""
    samples = (parted(images[row]) for row in range(len(images)))
    while part := list(islice(samples, size)):
        tensors = [tensor for tensor, _ in part]
        if not all(isinstance(tensor, Tensor) and tensor.shape == tensors[0].shape for tensor in tensors):
            raise InputError(f"{ACCEPTED}; {type(images).__name__} gives no tensors of one shape")
        yield Prepared(torch.stack(tensors), np.array([label for _, label in part], np.int64))
