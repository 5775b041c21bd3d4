"""Images in memory: one of any kind, sets of them as a data set, and batches of tensors that are prepared already."""

from __future__ import annotations

import os
import sys
import threading
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from io import BytesIO
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np
import PIL.Image
import PIL.ImageOps
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.machine import count_cores
from oodshape.images import identity
from oodshape.images.decode.prefetch import MOST
from oodshape.images.decode.preprocessing import as_picture
from oodshape.images.decode.read import Unreadable, open_image, to_mode
from oodshape.images.sources.image_set import Image, IndexedImages
from oodshape.images.sources.storage import stamp_file

if TYPE_CHECKING:  # only where there is a tensor
    from torch import Tensor

CHANNELS = (1, 3, 4)  # gray, colour, colour with alpha, which is dropped
KEYS = ("image", "pixel_values")  # of a sample that is a dictionary
PREPARED_KEYS = KEYS[::-1]
ONE = "a path, a PIL image, encoded bytes, uint8 [H, W] or [H, W, C], or a tensor [C, H, W], uint8 or float in 0..1"


class SequenceImages(IndexedImages):
    """A data set from any sequence of images, (image, label) pairs or dictionaries.

    An image's identity is its path, or where it has none a hash of its pixels. For these and the labels everything is
    read once, ahead of the work. A custom data set is read by one thread at a time, because many are not thread-safe.
    """

    def __init__(self, items: Any, name: str, *, upright: bool = False, threads: bool = True) -> None:
        """Take the items as they are; nothing is read before it is asked for."""
        self.items, self.name, self.upright, self.classes = items, name, upright, _class_names(items)
        self._alone: AbstractContextManager[Any] = nullcontext() if threads else threading.Lock()
        if len(items) == 0:
            raise InputError(f"{name} holds no image")

    def __len__(self) -> int:
        return len(self.items)

    def _open(self, index: int, upright: bool) -> Image:
        return as_image(self._sample(index)[0], upright=upright)

    def called(self, index: int) -> str:
        """What an image is called in a row or a message: its path where it has one."""
        item = self.items[index] if isinstance(self.items, (list, tuple)) else None
        item = item[0] if isinstance(item, (tuple, list)) and item else item
        return os.fspath(item) if isinstance(item, (str, os.PathLike)) else f"image {index}"

    @cached_property
    def labels(self) -> NDArray[np.int64]:  # type: ignore[override]  # read when asked for
        """[N]: the class of each image, -1 for none."""
        return self._scanned[1]

    @property
    def identities(self) -> identity.Keys:
        """[N]: which image each is, by its path or its pixels."""
        return self._scanned[0]

    def _stamps(self, contents: bool) -> tuple[Any, ...]:
        return tuple(stamp_file(path, contents=contents) for path in self._scanned[2] if path)

    def _sample(self, index: int) -> tuple[Any, int]:
        try:
            with self._alone:
                sample = self.items[index]
        except Exception as error:  # the user's own code
            raise Unreadable(f"image {index} of {self.name}", f"cannot be read ({error!r})") from error
        image, label = split_sample(sample)
        return image, _as_label(label)

    @cached_property
    def _scanned(self) -> tuple[identity.Keys, NDArray[np.int64], list[str]]:
        """Identities, labels and paths (empty without one), from one look at every image."""
        with ThreadPoolExecutor(min(MOST, count_cores())) as pool:
            pairs = list(pool.map(self._key, range(len(self))))
        if self._key(0) != pairs[0]:
            warnings.warn(
                f"{self.name} gives another image each time that it is asked for the first one: turn random "
                "augmentation off, and give the images as the network sees them in use",
                stacklevel=2,
            )
        keys, labels, paths = zip(*pairs, strict=True)
        return np.array(keys, np.uint64), np.array(labels, np.int64), list(paths)

    def _key(self, index: int) -> tuple[int, int, str]:
        try:
            item, label = self._sample(index)
            if isinstance(item, (str, os.PathLike)):
                return int(identity.from_paths([os.fspath(item)])[0]), label, os.fspath(item)
            return pixel_key(as_image(item, upright=self.upright)), label, ""
        except InputError as error:  # left out, or an error, when its turn comes
            return int(identity.hash_each([f"{index} {error}"])[0]), -1, ""


def pixel_key(image: Image) -> int:
    """64 bits of a hash of the pixels: equal for a picture, an array and a file of the same image."""
    return int(identity.hash_each([np.asarray(to_mode(as_picture(image), "RGB"))])[0])


def _class_names(items: Any) -> tuple[str, ...]:
    """The names of the classes, where the data set says them as torchvision's or Hugging Face's do."""
    names: Any = getattr(items, "classes", None)
    features: Any = getattr(items, "features", None)
    if names is None and isinstance(features, dict):
        names = getattr(features.get("label"), "names", None)
    listed = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
    return tuple(names) if listed else ()


def is_tensor(thing: Any) -> TypeGuard[Tensor]:
    """Whether it is a tensor of torch; nothing is one before torch is imported."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(thing, torch.Tensor)


def is_image(thing: Any) -> bool:
    """Whether the type can hold one image or a batch of images; paths do not count."""
    return isinstance(thing, (PIL.Image.Image, bytes, bytearray, memoryview, np.ndarray)) or is_tensor(thing)


def split_sample(sample: Any, keys: Sequence[str] = KEYS) -> tuple[Any, Any]:
    """(image, label) of what a data set gives, or (images, labels) of a batch: these, a pair, or a dictionary."""
    if isinstance(sample, Mapping):
        key = next((key for key in keys if key in sample), None)
        if key is None:
            raise InputError(f'a sample that is a dictionary needs "image" or "pixel_values", got {list(sample)}')
        return sample[key], sample.get("label", sample.get("labels"))
    if isinstance(sample, (tuple, list)) and 1 <= len(sample) <= 2:
        return sample[0], sample[1] if len(sample) == 2 else None
    return sample, None


def _as_label(label: Any) -> int:
    """Return a class number, or -1 for anything else.

    >>> _as_label(np.int64(3)), _as_label(None), _as_label("cat")
    (3, -1, -1)
    """
    if is_tensor(label) and label.numel() == 1 and not label.is_floating_point():
        label = label.item()
    whole = isinstance(label, (int, np.integer)) and not isinstance(label, bool)
    return max(int(label), -1) if whole else -1


def as_image(thing: Any, *, upright: bool) -> Image:
    """The image as the preprocessing takes it; where it is none, an error that says what can be one."""
    if isinstance(thing, (str, os.PathLike)):
        return open_image(os.fspath(thing), upright=upright)
    if isinstance(thing, (bytes, bytearray, memoryview)):
        return _decoded(bytes(thing), upright)
    if isinstance(thing, PIL.Image.Image):
        return _loaded(thing, upright)
    if is_tensor(thing):
        return _of_tensor(thing)
    if isinstance(thing, np.ndarray):
        return _of_array(thing)
    raise InputError(f"an image is {ONE}; got {type(thing).__name__}")


def _decoded(data: bytes, upright: bool) -> Image:
    try:
        return open_image(BytesIO(data), upright=upright)
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
    return _of_array(as_uint8(tensor).permute(1, 2, 0).cpu().numpy())


def as_uint8(values: Tensor) -> Tensor:
    """uint8 of the same shape: whole numbers as they are, fractions in 0..1 rounded to 255ths."""
    if values.is_meta:
        raise InputError("an image on the meta device has no values; give tensors that hold pixels")
    if str(values.dtype) == "torch.uint8":
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


BATCHES = (
    "prepared=True takes a DataLoader or any iterable of batches: tensors [N, ...] that the network takes as they are, "
    'pairs (tensor, labels), or dictionaries with "pixel_values" or "image"; or a data set that gives one such image'
)
BATCH_SIZE = 32  # images of a batch that is made here
PreparedBatch = tuple["Tensor", NDArray[np.int64]]  # what the network takes [N, ...], a label for each image (-1: none)


def iterate_prepared(images: Any, size: int = BATCH_SIZE) -> Iterator[PreparedBatch]:
    """The batches one by one; a tensor of all images, and a data set of single ones, are cut into batches of `size`.

    >>> import torch
    >>> [len(batch) for batch, _ in iterate_prepared(torch.zeros(5, 3, 8, 8), 2)]
    [2, 2, 1]
    """
    check_prepared(images)
    if is_tensor(images):
        return (_batch(images[first : first + size], 0) for first in range(0, len(images), size))
    if not isinstance(images, (list, tuple)) and hasattr(images, "__getitem__") and hasattr(images, "__len__"):
        return _batches_of_single(images, size)
    return (_batch(batch, place) for place, batch in enumerate(images))


def check_prepared(images: Any) -> None:
    """Refuse what cannot be batches, before any work."""
    if isinstance(images, (str, bytes, Mapping)) or not (
        isinstance(images, Iterable) or hasattr(images, "__getitem__")
    ):
        raise InputError(f"{BATCHES}; got {type(images).__name__}")
    if is_tensor(images) and images.ndim < 2:
        raise InputError(f"{BATCHES}; got a tensor {list(images.shape)}")
    if isinstance(images, Sized) and len(images) == 0:
        raise InputError(f"{BATCHES}; got an empty {type(images).__name__}")


def count_prepared(images: Any) -> int | None:
    """How many images there are, where that is known before they are read: batches may have any size."""
    images = getattr(images, "dataset", images)  # of a DataLoader
    return len(images) if isinstance(images, Sized) and not isinstance(images, (list, tuple)) else None


def _batch(batch: Any, place: int) -> PreparedBatch:
    batch, labels = split_sample(batch, PREPARED_KEYS)
    if not is_tensor(batch) or batch.ndim < 2 or len(batch) == 0:
        what = f"a tensor {list(batch.shape)}" if is_tensor(batch) else type(batch).__name__
        raise InputError(f"{BATCHES}; got {what} as batch {place}")
    return batch, _batch_labels(labels, len(batch))


def _batch_labels(labels: Any, n: int) -> NDArray[np.int64]:
    """[N]: whole numbers, one per image, as they are; anything else is no label."""
    none = np.full(n, -1, np.int64)
    try:
        listed = list(labels) if labels is not None else []
    except TypeError:
        return none
    return np.array([_as_label(label) for label in listed], np.int64) if len(listed) == n else none


def _batches_of_single(images: Any, size: int) -> Iterator[PreparedBatch]:
    """The batches of a data set whose every sample is one prepared image."""
    import torch

    samples = (split_sample(images[row], PREPARED_KEYS) for row in range(len(images)))
    while part := list(islice(samples, size)):
        tensors = [tensor for tensor, _ in part]
        if not all(is_tensor(tensor) and tensor.shape == tensors[0].shape for tensor in tensors):
            raise InputError(f"{BATCHES}; {type(images).__name__} gives no tensors of one shape")
        yield torch.stack(tensors), np.array([_as_label(label) for _, label in part])
