"""Images as users have them, in order, read when needed: what a thing is, is decided here and nowhere else.

Folders, lists, globs, standard input and files are a `Listing`; what lies behind an address, in tar files or in a
Parquet column is `Stored`; pictures, arrays, tensors, encoded bytes and data sets of them are `Pictures`. `image_set`
gives any as a data set, `one_by_one` for a single pass.
"""

from __future__ import annotations

import glob
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from inspect import getattr_static
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.core.reading import any_names
from oodshape.core.words import counted
from oodshape.images import identity
from oodshape.images.decode import open_image, read_image
from oodshape.images.folders import ImageFiles, list_pairs
from oodshape.images.globs import below, matched
from oodshape.images.image_set import Image, ImageSet
from oodshape.images.in_memory import PictureListing, Pictures
from oodshape.images.limits import Limits
from oodshape.images.one_image import as_bytes, as_image, is_image, parted
from oodshape.images.parquet_rows import ParquetImages
from oodshape.images.places import is_remote, readable, root_of, stamp
from oodshape.images.stored import RemoteImages, Stored
from oodshape.images.tar_shards import PACKED, TarImages
from oodshape.images.walking import labelled

LISTS = (".txt", ".lst", ".list", ".csv")
PARQUET = (".parquet", ".pq")
Given = Any  # whatever ACCEPTED says
ACCEPTED = (
    "images are a folder, a list, a glob, - for standard input, tar files, Parquet files, an address such as "
    "s3://bucket/folder; a path, a PIL image, encoded bytes, or a list of them; "
    "uint8 arrays [H, W], [H, W, C] or [N, H, W, C]; tensors [N, C, H, W], uint8 or float in 0..1; a data set that "
    'gives an image, (image, label) or a dictionary with "image" or "pixel_values"; with prepared=True a DataLoader, '
    "or any batches of tensors that the network takes as they are"
)


@dataclass(frozen=True)
class Listing:
    """Image files in their order, each with a label (-1: none): nothing is opened before it is asked for.

    `given` is a folder, a text or CSV list, a glob, `-` for standard input (one path a line), an image file, or
    several paths. The paths of a list are relative to the list's folder.
    """

    given: str | tuple[str, ...]

    @classmethod
    def of(cls, images: Given | Listing) -> Listing:
        """The listing of files that a user gave; images in memory are refused."""
        found = one_by_one(images)
        if not isinstance(found, Listing):
            raise InputError(f"paths of image files are needed here, got {found.name}, which are none")
        return found

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """(path, label) one by one."""
        given = self.given
        if isinstance(given, tuple):
            return ((path, -1) for path in given)
        if given == "-":
            return ((line.rstrip("\r\n"), -1) for line in any_names(sys.stdin) if line.strip())
        if os.path.isdir(given):
            return below(given)
        if os.path.isfile(given):
            return list_pairs(Path(given)) if given.lower().endswith(LISTS) else iter([(given, -1)])
        if glob.has_magic(given):
            return matched(given)
        raise InputError(f"there is no file or folder {given}, and it is no glob such as 'photos/**/*.jpg'")

    @property
    def name(self) -> str:
        """A short name for messages: the folder's or the file's."""
        if isinstance(self.given, tuple):
            return counted(len(self.given), "image")
        return "standard input" if self.given == "-" else Path(self.given).resolve().name

    def count(self) -> int | None:
        """The number of images; None for standard input, which cannot be read twice."""
        return None if self.given == "-" else sum(1 for _ in self)

    def file(self, path: str) -> str:
        """Where a listed path lies."""
        given = self.given
        is_list = isinstance(given, str) and given.lower().endswith(LISTS) and os.path.isfile(given)
        return os.path.join(os.path.dirname(str(given)), path) if is_list and not is_remote(path) else path

    def opened(self, path: str) -> Any:
        """What a decoder can open of a listed path."""
        return readable(self.file(path))

    def read(self, pair: tuple[str, int], *, upright: bool) -> Image:
        """The image that a listed path stands for, as a preprocessing takes it."""
        return open_image(self.file(pair[0]), upright=upright)

    def below_root(self, path: str) -> str:
        """A listed path from the given root: that of a glob is the folder before its first sign; else as listed."""
        if not isinstance(self.given, str) or os.path.isfile(self.given) or not glob.has_magic(self.given):
            return path
        fixed = root_of(self.given)
        return os.path.relpath(path, fixed) if fixed else path


def one_by_one(images: Given) -> Listing | PictureListing:
    """What a user gave, for a single pass; what cannot be images is refused now."""
    if isinstance(images, PictureListing):
        return images
    found = _decided(images)
    if isinstance(found, Listing):
        return found
    if isinstance(found, ImageFiles):
        return Listing(tuple(found.paths()))
    return PictureListing(found if isinstance(found, (Pictures, Stored)) else Pictures(found, found.name))


def image_set(images: Given, *, upright: bool | None = None) -> ImageSet:
    """What a user gave, as a data set, its images turned as their EXIF orientation says or not.

    None: not, but sets that say it themselves (`ImageFolder`, `ImageList`) stay as they are.
    """
    found = _decided(images, upright=bool(upright))
    if isinstance(found, Listing):
        return GivenImages(found, upright=bool(upright))
    if isinstance(found, ImageFiles) and upright not in (None, found.upright):
        return GivenImages.of_files(found, upright=bool(upright))
    if isinstance(found, Stored) and upright not in (None, found.upright):
        return found.turned(bool(upright))
    return found


def in_column(images: str | None, column: str | None) -> Given:
    """What a user named, with the column of a Parquet file that holds the images."""
    if images is None or column is None:
        return images
    if not images.lower().endswith(PARQUET):
        raise InputError(f"a column is for Parquet files (.parquet), got the images {images}")
    return ParquetImages(images, column)


def classes_of(images: ImageSet) -> tuple[str, ...]:
    """The names behind the labels, where the images come with them."""
    names: tuple[str, ...] = getattr(images, "classes", ())
    return names


def _decided(images: Given, *, upright: bool = False) -> Listing | Pictures | Stored | ImageSet:
    """The one decision."""
    if isinstance(images, (Listing, Pictures, Stored)):
        return images
    if isinstance(images, (str, os.PathLike)):
        return _of_path(os.fspath(images), upright)
    if is_image(images):
        return Pictures(*_stacked(images), upright=upright)
    if all(_has(images, name) for name in ("name", "labels", "fingerprint", "__len__", "__getitem__")):
        made: ImageSet = images
        return made
    if hasattr(images, "__getitem__") and hasattr(images, "__len__") and not isinstance(images, (Mapping, list, tuple)):
        as_image(_first(images), upright=False)  # the wrong kind of data set is refused before any work
        return Pictures(images, type(images).__name__, upright=upright, threads=False)
    if not isinstance(images, Iterable) or isinstance(images, Mapping):
        raise InputError(f"{ACCEPTED}; got {type(images).__name__}")
    return _of_items(images, upright)


def _has(images: Any, name: str) -> bool:
    """Whether it has an attribute, without a look at its value where that can be told: a fingerprint reads files."""
    return getattr_static(images, name, None) is not None or hasattr(images, name)


def _of_path(given: str, upright: bool) -> Listing | Stored:
    """By the ending: archives and tables, wherever they lie; else an address, or files of this machine."""
    if not os.path.isdir(given) and given.lower().endswith((".tar", *PACKED)):
        return TarImages(given, upright=upright)
    if not os.path.isdir(given) and given.lower().endswith(PARQUET):
        return ParquetImages(given, upright=upright)
    return RemoteImages(given, upright=upright) if is_remote(given) else Listing(given)


def _of_items(images: Iterable[Any], upright: bool) -> Listing | Pictures:
    """A list of paths, or of images of any kind."""
    items: list[Any] = []
    for place, item in enumerate(images):
        image = parted(item)[0]
        if not isinstance(image, (str, os.PathLike)) and not is_image(image):
            what = f"{type(images).__name__} with {type(item).__name__} at place {place}"
            raise InputError(f"{ACCEPTED}; got {what}")
        if isinstance(image, (np.ndarray, Tensor)):
            as_image(image, upright=False)
        items.append(item)
    if all(isinstance(item, (str, os.PathLike)) for item in items):
        return Listing(tuple(map(os.fspath, items)))
    return Pictures(items, counted(len(items), "image"), upright=upright)


def _stacked(images: Any) -> tuple[Any, str]:
    """One image in memory, or a batch of them, as a sequence, and its name."""
    if isinstance(images, np.ndarray) and images.ndim == 4:
        as_image(images[0] if len(images) else images, upright=False)
        return images, counted(len(images), "image")
    if isinstance(images, Tensor) and images.ndim == 4:
        images = as_bytes(images)
        as_image(images[0] if len(images) else images, upright=False)
        return images, counted(len(images), "image")
    if isinstance(images, (np.ndarray, Tensor)):
        as_image(images, upright=False)
    return [images], "1 image"


def _first(images: Any) -> Any:
    try:
        sample = images[0]
    except Exception as error:  # the user's own code
        raise InputError(f"{type(images).__name__} gives no first image: {error!r}; {ACCEPTED}") from error
    return parted(sample)[0]


class GivenImages(ImageFiles):
    """The images of a listing as a data set; files that are missing or broken are errors only when they are read."""

    def __init__(self, images: Given | Listing, *, upright: bool = False) -> None:
        """List the images; class folders give labels and their names are `classes`."""
        listing = Listing.of(images)
        self.upright = upright
        if isinstance(listing.given, str) and os.path.isdir(listing.given):
            root = Path(listing.given)  # which spells it in one way: files are known by their paths
            names, labels, self.classes = labelled(root)
            files = [os.path.join(root, name) for name in names]
        else:
            pairs = list(listing)
            files = [listing.file(path) for path, _ in pairs]
            names = [listing.below_root(path) for path, _ in pairs]
            labels = np.array([label for _, label in pairs], np.int64)
        if not files:
            raise InputError(f"{listing.name} lists no image")
        self._names: Sequence[str] = names
        super().__init__(listing.name, Path(), files, labels)

    @classmethod
    def of_files(cls, images: ImageFiles, *, upright: bool) -> GivenImages:
        """The files of another set, turned in this way."""
        made = cls(images.paths(), upright=upright)
        made.name, made.labels, made.classes, made._names = images.name, images.labels, images.classes, images.files
        return made

    @cached_property
    def identities(self) -> identity.Keys:
        """[N]: which image each is, by its path below the given folder, or as it was listed."""
        return identity.of_paths(self._names)

    @property
    def fingerprint(self) -> str:
        """A hash of paths, sizes, times of the last change, labels, the way they are turned, and own limits."""
        stamps = np.array([_stamp(file) for file in self.files], np.int64)
        names = "\0".join(self.files).encode(errors="surrogateescape")
        remote = [stamp(file) for file in self.files if is_remote(file)]
        return fingerprint_of(names, stamps, self.labels, f"upright={self.upright}", *remote, *Limits.now().words)

    def __getitem__(self, index: int) -> PIL.Image.Image:
        """The image as RGB."""
        return read_image(self.files[index], upright=self.upright)  # as it is: a `Path` would spoil an address

    def opened(self, index: int) -> Image:
        """The image as a preprocessing takes it: a large one as it is stored."""
        return open_image(self.files[index], upright=self.upright)


def chunks(listing: Iterator[tuple[str, int]], size: int) -> Iterator[list[tuple[str, int]]]:
    """Consecutive runs of at most `size` images."""
    while part := list(islice(listing, size)):
        yield part


def _stamp(file: str) -> tuple[int, int]:
    try:
        status = os.stat(file)
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns
