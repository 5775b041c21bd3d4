"""One image as users have it: a path, encoded bytes, a picture, an array or a tensor; with or without a label."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import PIL.Image
import PIL.ImageOps
import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.images.decode import Unreadable, read_image
from oodshape.images.image_set import Image

CHANNELS = (1, 3, 4)  # gray, colour, colour with alpha, which is dropped
KEYS = ("image", "pixel_values")  # of a sample that is a dictionary
ONE = "a path, a PIL image, encoded bytes, uint8 [H, W] or [H, W, C], or a tensor [C, H, W], uint8 or float in 0..1"


def is_image(thing: Any) -> bool:
    """Whether it is of a type that can hold one image, or be a batch of them; paths are another matter."""
    return isinstance(thing, (PIL.Image.Image, bytes, bytearray, memoryview, np.ndarray, Tensor))


def parted(sample: Any) -> tuple[Any, int]:
    """(image, label) of what a data set gives: an image, (image, label), or a dictionary; -1: no whole number."""
    label: Any = None
    if isinstance(sample, Mapping):
        key = next((key for key in KEYS if key in sample), None)
        if key is None:
            raise InputError(f'a sample that is a dictionary needs "image" or "pixel_values", got {list(sample)}')
        sample, label = sample[key], sample.get("label")
    elif isinstance(sample, (tuple, list)) and len(sample) == 2:
        sample, label = sample
    return sample, as_label(label)


def as_label(label: Any) -> int:
    """A class number; -1 for whatever is none.

    >>> as_label(np.int64(3)), as_label(None), as_label("cat")
    (3, -1, -1)
    """
    if isinstance(label, Tensor) and label.numel() == 1 and not label.is_floating_point():
        label = label.item()
    whole = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
    return max(int(label), -1) if whole else -1


def as_image(thing: Any, *, upright: bool) -> Image:
    """The image as the preprocessing takes it; where it is none, an error that says what can be one."""
    if isinstance(thing, (str, os.PathLike)):
        return read_image(os.fspath(thing), upright=upright)
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return _decoded(bytes(thing), upright)
    if isinstance(thing, PIL.Image.Image):
        return _loaded(thing, upright)
    if isinstance(thing, Tensor):
        return _of_tensor(thing)
    if isinstance(thing, np.ndarray):
        return _of_array(thing)
    raise InputError(f"an image is {ONE}; got {type(thing).__name__}")


def _decoded(data: bytes, upright: bool) -> PIL.Image.Image:
    try:
        return read_image(io.BytesIO(data), upright=upright)  # type: ignore[arg-type]  # Pillow opens both
    except Unreadable as error:
        raise Unreadable(f"an image of {len(data)} bytes", error.reason) from None


def _loaded(picture: PIL.Image.Image, upright: bool) -> PIL.Image.Image:
    try:
        picture.load()  # an opened file may turn out to be broken only now
        return PIL.ImageOps.exif_transpose(picture) if upright else picture
    except Exception as error:  # as with files, almost anything
        raise Unreadable("a PIL image", f"cannot be read ({error})") from None


def _of_array(array: np.ndarray[Any, Any]) -> Image:
    gray = array.ndim == 2
    if array.dtype != np.uint8 or not (gray or (array.ndim == 3 and array.shape[2] in CHANNELS)) or 0 in array.shape:
        raise InputError(
            f"an image that is an array is uint8 [H, W], or [H, W, C] with 1, 3 or 4 channels, got "
            f"{array.dtype}{list(array.shape)}; gray images in one array are [N, H, W, 1]: images[..., None]"
        )
    return PIL.Image.fromarray(array) if not gray and array.shape[2] == 4 else array


def _of_tensor(tensor: Tensor) -> Image:
    if tensor.ndim != 3 or tensor.shape[0] not in CHANNELS:
        raise InputError(
            f"an image that is a tensor is [C, H, W] with 1, 3 or 4 channels, got {list(tensor.shape)}; tensors that "
            "the network takes as they are: prepared=True"
        )
    return _of_array(as_bytes(tensor).permute(1, 2, 0).cpu().numpy())


def as_bytes(values: Tensor) -> Tensor:
    """uint8 of the same shape: whole numbers as they are, fractions in 0..1 rounded to 255ths."""
    if values.dtype == torch.uint8:
        return values
    if not values.is_floating_point():
        raise InputError(f"an image that is a tensor is uint8, or float in 0..1, got {values.dtype}")
    low, high = (float(each) for each in values.detach().aminmax())
    if not (low >= 0 and high <= 1):
        raise InputError(
            f"an image that is a float tensor lies in 0..1, got {low:g} to {high:g}; tensors that are normalised "
            "already, and that the network takes as they are: prepared=True"
        )
    return (255 * values.detach()).round().byte()
