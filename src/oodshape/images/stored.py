"""Stored: images that are no files of this machine by themselves: behind an address, in a tar, in a Parquet column.

Each is a run of encoded bytes with a name, decoded by our own decoder: one that is broken, or has gone, is one error.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from copy import copy
from functools import cached_property
from io import BytesIO
from typing import TypeVar

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.core.reading import DAMAGE, one_line
from oodshape.core.spent import spending
from oodshape.images import identity
from oodshape.images.decode import Unreadable, read_image
from oodshape.images.limits import Limits
from oodshape.images.places import read_bytes, remote_images, stamp

S = TypeVar("S", bound="Stored")


class Stored(ABC):
    """Images by number, their names, and what identifies them: the name below the given root."""

    classes: tuple[str, ...] = ()  # the names behind the labels, where folders give them
    name: str
    upright: bool = False  # turned as their EXIF orientation says

    @abstractmethod
    def __len__(self) -> int:
        """The number of images."""

    @abstractmethod
    def called(self, index: int) -> str:
        """What an image is called in a row or a message."""

    @abstractmethod
    def below_root(self, index: int) -> str:
        """Its name from the given root: what identifies it."""

    @abstractmethod
    def number(self, called: str) -> int:
        """The number of the image of that name."""

    @abstractmethod
    def data(self, index: int) -> bytes:
        """The encoded image."""

    @property
    @abstractmethod
    def labels(self) -> NDArray[np.int64]:
        """[N]: the class of each image, -1 for none."""

    @property
    @abstractmethod
    def _stamps(self) -> tuple[str, ...]:
        """What changes with the files that hold the images, and what is read of them."""

    def __getitem__(self, index: int) -> PIL.Image.Image:
        """An image, or why there is none."""
        return self.image(index, upright=self.upright)

    def image(self, index: int, *, upright: bool) -> PIL.Image.Image:
        """The image of that number, turned as its EXIF orientation says or not."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} images, there is no number {index}")
        try:
            return read_image(self.encoded(index), upright=upright)  # type: ignore[arg-type]  # Pillow opens both
        except Unreadable as error:
            raise Unreadable(self.called(index), error.reason) from None

    def encoded(self, index: int) -> BytesIO:
        """The encoded image as a file; whatever its store makes of a file that has gone or is damaged, as one error."""
        try:
            with spending("read"):
                return BytesIO(self.data(index))
        except InputError:
            raise
        except (OSError, *DAMAGE) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or error
            raise Unreadable(self.called(index), f"cannot be read ({one_line(why) or type(error).__name__})") from None

    @cached_property
    def identities(self) -> identity.Keys:
        """[N]: which image each is."""
        return identity.of_paths(self.below_root(row) for row in range(len(self)))

    @property
    def fingerprint(self) -> str:
        """A hash of names, of what changes with the files, of labels, the way they are turned, and own limits."""
        turned = f"upright={self.upright}"
        return fingerprint_of("stored", self.identities, *self._stamps, self.labels, turned, *Limits.now().words)

    def turned(self: S, upright: bool) -> S:
        """The same images, turned in this way."""
        made = copy(self)
        made.upright = upright
        return made

    def __repr__(self) -> str:
        """The name and the number of images."""
        return f"{type(self).__name__}({self.name!r}, {len(self)} images)"


class RemoteImages(Stored):
    """The images behind an address: a folder, with class folders or without, a glob, or one image.

    Order, labels and identities are those of the same files in a folder of this machine.
    """

    def __init__(self, given: str, *, upright: bool = False) -> None:
        """List the images; nothing else is read before it is asked for."""
        self.upright = upright
        self.root, self.names = remote_images(given)
        self.name = self.root.rstrip("/").rpartition("/")[2] or given
        tops = [name.partition("/")[0] if "/" in name else "" for name in self.names]
        self.classes = () if "" in tops else tuple(sorted(set(tops)))
        number = {top: label for label, top in enumerate(self.classes)}
        self._labels = np.array([number.get(top, -1) for top in tops], np.int64)

    def __len__(self) -> int:
        """The number of images."""
        return len(self.names)

    def called(self, index: int) -> str:
        """Its address."""
        return f"{self.root}/{self.names[index]}"

    def below_root(self, index: int) -> str:
        """Its path below the given folder."""
        return self.names[index]

    def number(self, called: str) -> int:
        """Its place in the list."""
        return self.names.index(called.removeprefix(f"{self.root}/"))

    def data(self, index: int) -> bytes:
        """The file."""
        return read_bytes(self.called(index))

    @property
    def labels(self) -> NDArray[np.int64]:
        """[N]: those of the class folders."""
        return self._labels

    @property
    def _stamps(self) -> tuple[str, ...]:
        return ("\n".join(stamp(self.called(row)) for row in range(len(self))),)
