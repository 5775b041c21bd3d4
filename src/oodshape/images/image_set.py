"""ImageSet, what every data set looks like, and the set that is an array."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.images import identity
from oodshape.images.identity import Keys

Image = Any  # a PIL image, or a uint8 array [H, W] or [H, W, 3]; for a preprocessing also a `Large`


class ImageSet(Protocol):
    """A data set: images by number, their labels (-1 where there is none), and what identifies its content.

    It may also have `identities`, [N] uint64 that say which image each is (`images.identity`); without, that is its
    number.
    """

    @property
    def name(self) -> str:
        """A short name for tables and messages."""
        ...

    @property
    def labels(self) -> NDArray[np.int64]:
        """[N]: the class of each image, -1 for none."""
        ...

    @property
    def fingerprint(self) -> str:
        """16 hex digits that change with the images or their order."""
        ...

    def __len__(self) -> int:
        """The number of images."""
        ...

    def __getitem__(self, index: int) -> Image:
        """An image: a PIL image, or a uint8 array [H, W] or [H, W, 3]."""
        ...


def identities_of(images: ImageSet) -> Keys:
    """[N]: which image each is: what the set itself says, or its number."""
    own: Keys | None = getattr(images, "identities", None)
    return identity.numbered(len(images)) if own is None else own


def reader(images: ImageSet) -> Callable[[int], Image]:
    """How a set's images are read to be prepared: by `opened` where it has that, as sets of files do."""
    opened: Callable[[int], Image] = getattr(images, "opened", images.__getitem__)
    return opened


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
            raise InputError(
                f"{self.name}: images must be uint8 [N, H, W(, 3)], got {images.dtype}{list(images.shape)}"
            )
        labels = np.full(len(images), -1) if self.labels is None else np.asarray(self.labels)
        if labels.shape != images.shape[:1]:
            raise InputError(f"{self.name}: {len(images)} images need {len(images)} labels, got {list(labels.shape)}")
        object.__setattr__(self, "labels", labels.astype(np.int64))

    def __len__(self) -> int:
        """The number of images."""
        return len(self.images)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """An image as an array."""
        image: NDArray[np.uint8] = self.images[index]
        return image

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the pixels and the labels."""
        return fingerprint_of(self.images, self.labels)

    @cached_property
    def identities(self) -> Keys:
        """[N]: a hash of each image's pixels."""
        return identity.hashed(self.images)


@dataclass(frozen=True, eq=False)
class Subset:
    """Some images of another set, by number."""

    base: ImageSet
    indices: Sequence[int]

    @property
    def name(self) -> str:
        """The name of the whole set."""
        return self.base.name

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """The labels of the chosen images."""
        labels: NDArray[np.int64] = self.base.labels[np.asarray(self.indices)]
        return labels

    @property
    def fingerprint(self) -> str:
        """A hash of the whole set's fingerprint and the numbers chosen."""
        return fingerprint_of(self.base.fingerprint, np.asarray(self.indices, np.int64))

    @property
    def classes(self) -> tuple[str, ...]:
        """The names behind the labels, where the whole set has some."""
        names: tuple[str, ...] = getattr(self.base, "classes", ())
        return names

    @cached_property
    def identities(self) -> Keys:
        """[N]: those of the chosen images."""
        return identities_of(self.base)[np.asarray(self.indices, np.int64)]

    def __len__(self) -> int:
        """The number of images chosen."""
        return len(self.indices)

    def __getitem__(self, index: int) -> Image:
        """An image of the whole set."""
        return self.base[int(self.indices[index])]

    def opened(self, index: int) -> Image:
        """An image of the whole set as a preprocessing takes it."""
        return reader(self.base)(int(self.indices[index]))


def limited(images: ImageSet, limit: int | None, seed: int = 0) -> ImageSet:
    """A seeded subset of at most `limit` images, in their order; the set itself where it is no larger.

    The images are chosen by their identities: files may be listed in another order, or lie elsewhere.
    """
    if limit is None or len(images) <= limit:
        return images
    if limit < 1:
        raise InputError(f"limit must be at least 1, got {limit}")
    return Subset(images, identity.smallest(identities_of(images), limit, seed, "subset").tolist())
