"""What every image source looks like, and the sets that are an array or a part of another set."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import compute_fingerprint
from oodshape.images import identity
from oodshape.images.decode.limits import Limits
from oodshape.images.decode.read import LargePicture

Image = Any  # a PIL image, or a uint8 array [H, W] or [H, W, 3]; for a preprocessing also a `LargePicture`
Pair = tuple[str, int]  # an image's name in rows and messages, and its number, where it has one


class ImageSet(Protocol):
    """A data set: images by number, their labels (-1 where there is none), and what identifies its content.

    It may also have `identities`, [N] uint64 that say which image each is (`images.identity`); without, that is its
    number.
    """

    @property
    def name(self) -> str:
        """A short name for tables and messages."""

    @property
    def labels(self) -> NDArray[np.int64]:
        """[N]: the class of each image, -1 for none."""

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with the images or their order."""

    def __len__(self) -> int:
        """The number of images."""

    def __getitem__(self, index: int) -> Image:
        """An image: a PIL image, or a uint8 array [H, W] or [H, W, 3]."""


def find_identities(images: ImageSet) -> identity.Keys:
    """Return [N] identities: the set's own, or the row numbers."""
    own: identity.Keys | None = getattr(images, "identities", None)
    return identity.from_numbers(len(images)) if own is None else own


def choose_reader(images: ImageSet) -> Callable[[int], Image]:
    """How a set's images are read to be prepared: by `open` where it has that, as sets of files do."""
    read: Callable[[int], Image] = getattr(images, "open", images.__getitem__)
    return read


S = TypeVar("S", bound="IndexedImages")


class IndexedImages(ABC):
    """Images by number with names, labels and identities: image files, images in archives, images in memory."""

    name: str
    classes: tuple[str, ...] = ()  # the names behind the labels, where they are known
    upright: bool = False  # turned as their EXIF orientation says
    labels: NDArray[np.int64]  # [N]: the class of each image, -1 for none

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def called(self, index: int) -> str:
        """The name of an image in rows and messages."""

    @abstractmethod
    def _open(self, index: int, upright: bool) -> Image: ...

    @property
    @abstractmethod
    def identities(self) -> identity.Keys:
        """[N]: which image each is."""

    def _stamps(self, contents: bool) -> tuple[Any, ...]:
        """What changes with the files that hold the images, or with their `contents` alone."""
        return ()

    @property
    def fingerprint(self) -> str:
        """A hash of identities, stamps of the files, labels, the way images are turned, and limits of one's own."""
        return self._fingerprint(contents=False)

    @property
    def content_fingerprint(self) -> str:
        """The same by what the files hold, which is read, in place of their stamps."""
        return self._fingerprint(contents=True)

    def _fingerprint(self, *, contents: bool) -> str:
        turned = f"upright={self.upright}"
        return compute_fingerprint(self.identities, *self._stamps(contents), self.labels, turned, *Limits.now().words)

    def open(self, index: int, *, upright: bool | None = None) -> Image:
        """An image as a preprocessing takes it: a large one as it is stored."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} images, there is no number {index}")
        return self._open(index, self.upright if upright is None else upright)

    def __getitem__(self, index: int) -> Image:
        image = self.open(index)
        return image.whole() if isinstance(image, LargePicture) else image

    def pairs(self) -> Iterator[Pair]:
        """The name and the number of each image."""
        return ((self.called(row), row) for row in range(len(self)))

    def count(self) -> int:
        """The number of images."""
        return len(self)

    def read(self, pair: Pair, *, upright: bool) -> Image:
        """The image of that number."""
        return self.open(pair[1], upright=upright)

    def turned(self: S, upright: bool) -> S:
        """The same images, turned in this way."""
        made = copy(self)
        made.upright = upright
        return made

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {len(self)} images)"


@dataclass(frozen=True, eq=False)
class ArraySet:
    """Images that are one uint8 array [N, H, W] or [N, H, W, 3].

    >>> len(ArraySet("noise", np.zeros((2, 8, 8), np.uint8)))
    2
    """

    name: str
    images: NDArray[np.uint8]
    labels: NDArray[np.int64] = None  # type: ignore[assignment]  # None: -1 everywhere

    def __post_init__(self) -> None:
        """Fill in missing labels and refuse shapes that hold no images."""
        images = np.asanyarray(self.images)
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or len(images) == 0:
            raise InputError(f"{self.name}: images are uint8 [N, H, W(, 3)], got {images.dtype}{list(images.shape)}")
        labels = np.full(len(images), -1) if self.labels is None else np.asarray(self.labels)
        if labels.shape != images.shape[:1]:
            raise InputError(f"{self.name}: {len(images)} images need {len(images)} labels, got {list(labels.shape)}")
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        image: NDArray[np.uint8] = self.images[index]
        return image

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the pixels and the labels."""
        return compute_fingerprint(self.images, self.labels)

    @cached_property
    def identities(self) -> identity.Keys:
        """[N]: a hash of each image's pixels."""
        return identity.hash_each(self.images)


@dataclass(frozen=True, eq=False)
class Subset:
    """Some images of another set, by number."""

    base: ImageSet
    indices: Sequence[int]

    @property
    def name(self) -> str:
        return self.base.name

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        labels: NDArray[np.int64] = self.base.labels[np.asarray(self.indices)]
        return labels

    @property
    def fingerprint(self) -> str:
        """A hash of the whole set's fingerprint and the numbers chosen."""
        return compute_fingerprint(self.base.fingerprint, np.asarray(self.indices, np.int64))

    @property
    def content_fingerprint(self) -> str:
        """The same by what the files of the whole set hold."""
        whole = getattr(self.base, "content_fingerprint", self.base.fingerprint)
        return compute_fingerprint(whole, np.asarray(self.indices, np.int64))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names behind the labels, where the whole set has some."""
        return tuple(getattr(self.base, "classes", ()))

    @cached_property
    def identities(self) -> identity.Keys:
        """[N]: those of the chosen images."""
        return find_identities(self.base)[np.asarray(self.indices, np.int64)]

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Image:
        return self.base[int(self.indices[index])]

    def open(self, index: int) -> Image:
        """An image of the whole set as a preprocessing takes it."""
        return choose_reader(self.base)(int(self.indices[index]))


def limit_images(images: ImageSet, limit: int | None, seed: int = 0) -> ImageSet:
    """A seeded subset of at most `limit` images, in their order; the set itself where it is no larger.

    The images are chosen by their identities: files may be listed in another order, or lie elsewhere.
    """
    if limit is None or len(images) <= limit:
        return images
    if limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}")
    return Subset(images, identity.smallest(find_identities(images), limit, seed, "subset").tolist())


class Shard(NamedTuple):
    """The `number`-th of `count` runs of whole batches, so that several processes compute the same batches as one.

    Numbers begin at 1.

    >>> [Shard(number, 3).rows(1000, 64) for number in (1, 2, 3)]
    [range(0, 320), range(320, 640), range(640, 1000)]
    """

    number: int = 1
    shards: int = 1

    @classmethod
    def of(cls, text: str) -> Shard:
        """The shard that "3/16" names.

        >>> Shard.of("3/16")
        Shard(number=3, shards=16)
        """
        found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
        number, shards = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= number <= shards:
            raise InputError(f"a shard is I/N with I from 1 to N, such as 3/16, got {text!r}")
        return cls(number, shards)

    def rows(self, total: int, batch_size: int) -> range:
        """Which images of so many are in it; none where there are fewer batches than shards."""
        batches = -(-total // batch_size)
        first, last = (place * batches // self.shards for place in (self.number - 1, self.number))
        return range(min(first * batch_size, total), min(last * batch_size, total))

    def __str__(self) -> str:
        return f"{self.number}/{self.shards}"


def order_shards(files: Mapping[Path, Shard], advice: str) -> list[Path]:
    """Return the files of all shards in their order; files that overlap or are missing are an error."""
    first, found = next(iter(files)), dict[int, Path]()
    for path, (number, shards) in files.items():
        if shards != files[first].shards:
            raise InputError(
                f"{path} is one of {shards} shards, {first} one of {files[first].shards}: they overlap; make all with "
                "one number of shards"
            )
        if number in found:
            raise InputError(f"{path} and {found[number]} are both shard {number} of {shards}")
        found[number] = path
    shards = files[first].shards
    missing = shards - len(found)  # a file may claim more shards than can be listed
    if missing:
        named = islice((str(number) for number in range(1, shards + 1) if number not in found), 10)
        shown = ", ".join(named) + (f" and {missing - 10:,} more" if missing > 10 else "")
        raise InputError(f"shard {shown} of {shards} is missing next to {min(found.values())}: {advice}")
    return [found[number] for number in sorted(found)]
