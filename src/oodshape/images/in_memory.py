"""Pictures: images that are no files, or not only: a list of them, a batch, or a data set that gives them."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.core.machine import cores
from oodshape.images import identity
from oodshape.images.decode import Unreadable
from oodshape.images.image_set import Image
from oodshape.images.kinds import in_mode
from oodshape.images.one_image import as_image, parted
from oodshape.images.prefetch import MOST
from oodshape.images.preprocessing import picture
from oodshape.images.stored import Stored


class Pictures:
    """Whatever has a length and gives an image, (image, label) or a dictionary by number, as a data set.

    An image's identity is its path, or where it has none a hash of its pixels. For these and the labels everything is
    read once, ahead of the work. A user's own data set is read by one thread at a time: many cannot bear two.
    """

    def __init__(self, items: Any, name: str, *, upright: bool = False, threads: bool = True) -> None:
        """Take the items as they are; nothing is read before it is asked for."""
        self.items, self.name, self.upright = items, name, upright
        self._alone: AbstractContextManager[Any] = nullcontext() if threads else threading.Lock()
        if len(items) == 0:
            raise InputError(f"{name} holds no image")

    def __len__(self) -> int:
        """The number of images."""
        return len(self.items)

    def __getitem__(self, index: int) -> Image:
        """An image, or why there is none."""
        return self.image(index, upright=self.upright)

    def image(self, index: int, *, upright: bool) -> Image:
        """The image of that number, turned as its EXIF orientation says or not."""
        return as_image(self._sample(index)[0], upright=upright)

    def called(self, index: int) -> str:
        """What an image is called in a row or a message: its path where it has one."""
        item = self.items[index] if isinstance(self.items, (list, tuple)) else None
        item = item[0] if isinstance(item, (tuple, list)) and item else item
        return os.fspath(item) if isinstance(item, (str, os.PathLike)) else f"image {index}"

    @cached_property
    def classes(self) -> tuple[str, ...]:
        """The names of the classes, where the data set says them as torchvision's or Hugging Face's do."""
        names: Any = getattr(self.items, "classes", None)
        features: Any = getattr(self.items, "features", None)
        if names is None and isinstance(features, dict):
            names = getattr(features.get("label"), "names", None)
        listed = isinstance(names, (list, tuple)) and all(isinstance(name, str) for name in names)
        return tuple(names) if listed else ()

    @property
    def labels(self) -> NDArray[np.int64]:
        """[N]: the class of each image, -1 for none."""
        return self._scanned[1]

    @property
    def identities(self) -> identity.Keys:
        """[N]: which image each is, by its path or its pixels."""
        return self._scanned[0]

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the images, their labels, and the way they are turned."""
        return fingerprint_of("pictures", self.identities, self.labels, f"upright={self.upright}")

    def __repr__(self) -> str:
        """The name and the number of images."""
        return f"Pictures({self.name!r}, {len(self)} images)"

    def _sample(self, index: int) -> tuple[Any, int]:
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} images, there is no number {index}")
        try:
            with self._alone:
                sample = self.items[index]
        except Exception as error:  # the user's own code
            raise Unreadable(f"image {index} of {self.name}", f"cannot be read ({error!r})") from error
        return parted(sample)

    @cached_property
    def _scanned(self) -> tuple[identity.Keys, NDArray[np.int64]]:
        """Identities and labels, from one look at every image."""
        with ThreadPoolExecutor(min(MOST, cores())) as pool:
            pairs = list(pool.map(self._key, range(len(self))))
        if self._key(0) != pairs[0]:
            warnings.warn(
                f"{self.name} gives another image each time that it is asked for the first one: turn random "
                "augmentation off, and give the images as the network sees them in use",
                stacklevel=2,
            )
        return np.array([key for key, _ in pairs], np.uint64), np.array([label for _, label in pairs], np.int64)

    def _key(self, index: int) -> tuple[int, int]:
        try:
            item, label = self._sample(index)
            if isinstance(item, (str, os.PathLike)):
                return int(identity.of_paths([os.fspath(item)])[0]), label
            return pixel_key(as_image(item, upright=self.upright)), label
        except InputError as error:  # left out, or an error, when its turn comes
            return int(identity.hashed([f"{index} {error}"])[0]), -1


@dataclass(frozen=True)
class PictureListing:
    """Pictures, or stored images, one by one, as a `Listing` gives files: (what it is called, its number)."""

    pictures: Pictures | Stored

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """(name, number) one by one."""
        return ((self.pictures.called(row), row) for row in range(len(self.pictures)))

    @property
    def name(self) -> str:
        """A short name for messages."""
        return self.pictures.name

    def count(self) -> int:
        """The number of images."""
        return len(self.pictures)

    def opened(self, path: str) -> Any:
        """What a decoder can open of an image that was called so: its file, or its bytes."""
        return self.pictures.encoded(self.pictures.number(path)) if isinstance(self.pictures, Stored) else path

    def read(self, pair: tuple[str, int], *, upright: bool) -> Image:
        """The image of that number."""
        return self.pictures.image(pair[1], upright=upright)


def pixel_key(image: Image) -> int:
    """64 bits of a hash of the pixels: equal for a picture, an array and a file of the same image."""
    return int(identity.hashed([np.asarray(in_mode(picture(image), "RGB"))])[0])
