"""Open any kind of image input: `open_images` as a data set, `stream_images` for a single pass.

Folders, lists, globs, standard input, files and addresses become a `Listing`; tar files and Parquet columns become
`ArchivedImages`; pictures, arrays, tensors, encoded bytes and data sets of them become `SequenceImages`.
"""

from __future__ import annotations

import glob
import os
import sys
from array import array
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from inspect import getattr_static
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.files import any_names, bounded_lines
from oodshape.core.text import format_count
from oodshape.images.decode.read import open_image
from oodshape.images.sources import image_files
from oodshape.images.sources.archives import PACKED, ArchivedImages, ParquetImages, TarImages
from oodshape.images.sources.image_set import Image, ImageSet, ImageSource, IndexedImages, Pair
from oodshape.images.sources.memory import SequenceImages, as_image, as_uint8, is_image, is_tensor, split_sample
from oodshape.images.sources.storage import is_remote, list_remote_images, root_of

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
    """Image files in their order, each with a label (-1: none), listed while they are read.

    `given` is a folder, a text or CSV list, a glob, an address such as s3://bucket/folder, `-` for standard input (one
    path a line), an image file, or several paths. The paths of a list are relative to the list's folder.
    """

    given: str | tuple[str, ...]

    @property
    def is_list(self) -> bool:
        """Whether it is a text or CSV file that lists images."""
        given = self.given
        return isinstance(given, str) and given.lower().endswith(LISTS) and os.path.isfile(given)

    def pairs(self) -> Iterator[Pair]:
        """(path, label) one by one."""
        given = self.given
        if isinstance(given, tuple):
            return ((path, -1) for path in given)
        if given == "-":
            lines = bounded_lines(any_names(sys.stdin), self.name)
            return ((line.rstrip("\r\n"), -1) for line in lines if line.strip())
        if is_remote(given):
            root, names = list_remote_images(given)
            return ((f"{root}/{name}", -1) for name in names)
        if os.path.isdir(given):
            return image_files.list_folder(given)
        if os.path.isfile(given):
            return image_files.read_image_list(Path(given)) if self.is_list else iter([(given, -1)])
        if glob.has_magic(given):
            return image_files.match_glob(given)
        raise InputError(f"there is no file or folder {given}; a glob looks like 'photos/**/*.jpg'")

    @property
    def name(self) -> str:
        """A short name for messages: the folder's or the file's."""
        if isinstance(self.given, tuple):
            return format_count(len(self.given), "image")
        if is_remote(self.given):
            return self.given.rstrip("/").rpartition("/")[2]
        return "standard input" if self.given == "-" else os.path.basename(os.path.realpath(self.given))

    def count(self) -> int | None:
        """The number of images; None for standard input, which cannot be read twice."""
        return None if self.given == "-" else sum(1 for _ in self.pairs())

    def _file(self, path: str) -> str:
        """Where a listed path lies."""
        return os.path.join(os.path.dirname(str(self.given)), path) if self.is_list and not is_remote(path) else path

    def read(self, pair: Pair, *, upright: bool) -> Image:
        """The image of a listed path as a preprocessing takes it."""
        return open_image(self._file(pair[0]), upright=upright)

    def files(self, *, upright: bool) -> image_files.ImageFiles:
        """The images as a data set, listed once; class folders give labels, and their names are its `classes`."""
        given = self.given
        if isinstance(given, str) and os.path.isdir(given):
            return image_files.ImageFolder(given, name=self.name, upright=upright)
        if isinstance(given, str) and is_remote(given):
            root, names = list_remote_images(given)
            labels, classes = image_files.label_by_folder(names)
            return image_files.ImageFiles(self.name, root, names, labels, classes=classes, upright=upright)
        root, below = os.path.dirname(given) if isinstance(given, str) and self.is_list else "", ""
        if isinstance(given, str) and not os.path.isfile(given) and glob.has_magic(given):
            root = below = root_of(given)  # a glob's images are known by their paths from its folder
        listed = array("q")

        def paths() -> Iterator[str]:  # one by one: millions of pairs would need much memory for a moment
            for path, label in self.pairs():
                listed.append(label)
                yield os.path.relpath(path, below) if below else path

        found = image_files.PackedTexts(paths())
        if not found:
            raise InputError(f"{self.name} lists no image")
        return image_files.ImageFiles(
            self.name, root, found, np.array(listed, np.int64), upright=upright, by_name=self.is_list
        )


def check_paths(images: str) -> None:
    """Refuse a path that does not exist; everything else is read later."""
    archive = images.lower().endswith((".tar", *PACKED, *PARQUET))
    if not (archive or images == "-" or is_remote(images)):
        Listing(images).pairs()


def stream_images(images: Given) -> ImageSource:
    """Open images of any kind for a single pass; inputs that cannot be images are refused now."""
    found = _decided(images)
    return found if isinstance(found, (Listing, IndexedImages)) else SequenceImages(found, found.name)


def open_images(images: Given, *, upright: bool | None = None) -> ImageSet:
    """Open images of any kind as a data set, rotated by their EXIF orientation or not.

    None: not rotated, except for sets with their own setting (`ImageFolder`, `ImageList`).
    """
    found = _decided(images, upright=bool(upright))
    if isinstance(found, Listing):
        return found.files(upright=bool(upright))
    if isinstance(found, (image_files.ImageFiles, ArchivedImages)) and upright not in (None, found.upright):
        return found.turned(bool(upright))
    return found


def describe_skipped(images: Given) -> list[str]:
    """Describe the files of a folder that are not images, in at most one line."""
    given = images.given if isinstance(images, Listing) else images
    folder = os.fspath(given) if isinstance(given, (str, os.PathLike)) and os.path.isdir(given) else ""
    return [line for line in [image_files.count_skipped(folder)] if line] if folder else []


def in_column(images: str | None, column: str | None) -> Given:
    """Apply the column of a Parquet file that holds the images."""
    if images is None or column is None:
        return images
    if not images.lower().endswith(PARQUET):
        raise InputError(f"a column is for Parquet files (.parquet), got the images {images}")
    return ParquetImages(images, column)


def find_classes(images: ImageSet) -> tuple[str, ...]:
    """Return the class names of the labels, if the images come with them."""
    return tuple(getattr(images, "classes", ()))


def _decided(images: Given, *, upright: bool = False) -> Listing | ImageSet:
    if isinstance(images, (Listing, IndexedImages)):
        return images
    if isinstance(images, (str, os.PathLike)):
        return _of_path(os.fspath(images), upright)
    if is_image(images):
        return SequenceImages(*_stacked(images), upright=upright)
    if all(_has(images, name) for name in ("name", "labels", "fingerprint", "__len__", "__getitem__")):
        made: ImageSet = images
        return made
    if hasattr(images, "__getitem__") and hasattr(images, "__len__") and not isinstance(images, (Mapping, list, tuple)):
        as_image(_first(images), upright=False)  # the wrong kind of data set is refused before any work
        return SequenceImages(images, type(images).__name__, upright=upright, threads=False)
    if not isinstance(images, Iterable) or isinstance(images, Mapping):
        raise InputError(f"{ACCEPTED}; got {type(images).__name__}")
    return _of_items(images, upright)


def _has(images: Any, name: str) -> bool:
    """Whether it has an attribute, without a look at its value where that can be told: a fingerprint reads files."""
    return getattr_static(images, name, None) is not None or hasattr(images, name)


def _of_path(given: str, upright: bool) -> Listing | ArchivedImages:
    """By the ending: archives and tables, wherever they lie; else files or an address."""
    if not os.path.isdir(given) and given.lower().endswith((".tar", *PACKED)):
        return TarImages(given, upright=upright)
    if not os.path.isdir(given) and given.lower().endswith(PARQUET):
        return ParquetImages(given, upright=upright)
    return Listing(given)


def _of_items(images: Iterable[Any], upright: bool) -> Listing | SequenceImages:
    """A list of paths, or of images of any kind."""
    items: list[Any] = []
    for place, item in enumerate(images):
        image = split_sample(item)[0]
        if not isinstance(image, (str, os.PathLike)) and not is_image(image):
            what = f"{type(images).__name__} with {type(item).__name__} at place {place}"
            raise InputError(f"{ACCEPTED}; got {what}")
        if isinstance(image, np.ndarray) or is_tensor(image):
            as_image(image, upright=False)
        items.append(item)
    if all(isinstance(item, (str, os.PathLike)) for item in items):
        return Listing(tuple(map(os.fspath, items)))
    return SequenceImages(items, format_count(len(items), "image"), upright=upright)


def _stacked(images: Any) -> tuple[Any, str]:
    """One image in memory, or a batch of them, as a sequence, and its name."""
    if not (isinstance(images, np.ndarray) or is_tensor(images)):
        return [images], "1 image"
    if images.ndim != 4:
        as_image(images, upright=False)
        return [images], "1 image"
    images = as_uint8(images) if is_tensor(images) else images
    as_image(images[0] if len(images) else images, upright=False)
    return images, format_count(len(images), "image")


def _first(images: Any) -> Any:
    try:
        sample = images[0]
    except Exception as error:  # the user's own code
        raise InputError(f"{type(images).__name__} gives no first image: {error!r}; {ACCEPTED}") from error
    return split_sample(sample)[0]


def split_chunks(pairs: Iterator[Pair], size: int) -> Iterator[list[Pair]]:
    """Consecutive runs of at most `size` images."""
    while part := list(islice(pairs, size)):
        yield part
