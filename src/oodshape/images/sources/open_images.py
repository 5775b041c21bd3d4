"""Open any kind of image input: `open_images` as a data set, `stream_images` for a single pass.

Folders, lists, globs, files and addresses become `ImageFiles`; tar files and Parquet columns become `ArchivedImages`;
pictures, arrays, tensors, encoded bytes and data sets of them become `SequenceImages`. Paths on standard input are a
`StandardInput` for a single pass.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Iterator, Mapping
from inspect import getattr_static
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.files import any_names, bounded_lines
from oodshape.core.text import format_count
from oodshape.images.decode.read import open_image
from oodshape.images.sources.archives import PACKED, ArchivedImages, ParquetImages, TarImages
from oodshape.images.sources.image_files import (
    ImageFiles,
    ImageFolder,
    count_skipped,
    label_by_folder,
    match_glob,
    pack_image_list,
)
from oodshape.images.sources.image_set import Image, ImageSet, IndexedImages, Pair
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


class StandardInput:
    """The image files whose paths stand on standard input, one a line; they are read while lines still arrive."""

    name = "standard input"

    def pairs(self) -> Iterator[Pair]:
        """(path, -1) one by one."""
        lines = bounded_lines(any_names(sys.stdin), self.name)
        return ((line.rstrip("\r\n"), -1) for line in lines if line.strip())

    def count(self) -> None:
        """None: standard input cannot be read twice."""

    def read(self, pair: Pair, *, upright: bool) -> Image:
        """The image of a path as a preprocessing takes it."""
        return open_image(pair[0], upright=upright)


ImageSource = IndexedImages | StandardInput  # images in their order, for one pass


def list_files(given: str, *, upright: bool = False) -> ImageFiles:
    """The files of a folder, a text or CSV list, an address, a glob, or a single one, listed once.

    Class folders give labels, and their names are the `classes`. The paths of a list are relative to its folder.
    """
    name, is_file = os.path.basename(os.path.realpath(given)), os.path.isfile(given)
    if os.path.isdir(given):
        return ImageFolder(given, name=name, upright=upright)
    if is_remote(given):
        root, names = list_remote_images(given)
        labels, classes = label_by_folder(names)
        short = given.rstrip("/").rpartition("/")[2]
        return ImageFiles(short, root, names, labels, classes=classes, upright=upright)
    if is_file and given.lower().endswith(LISTS):
        listed, labels = pack_image_list(Path(given))
        return ImageFiles(name, os.path.dirname(given), listed, labels, upright=upright, by_name=True)
    root = "" if is_file else root_of(given)  # a glob's images are known by their paths from its folder
    names = [os.path.relpath(path, root) if root else path for path in match_glob(given)]
    return ImageFiles(name, root, names, upright=upright)


def check_paths(images: str) -> None:
    """Refuse a path that does not exist; everything else is read later."""
    archive = images.lower().endswith((".tar", *PACKED, *PARQUET))
    if not (archive or images == "-" or is_remote(images) or os.path.exists(images)):
        match_glob(images)


def stream_images(images: Given) -> ImageSource:
    """Open images of any kind for a single pass; inputs that cannot be images are refused now."""
    if isinstance(images, StandardInput) or (isinstance(images, str) and images == "-"):
        return StandardInput()
    found = open_images(images)
    return found if isinstance(found, IndexedImages) else SequenceImages(found, found.name)


def open_images(images: Given, *, upright: bool | None = None) -> ImageSet:
    """Open images of any kind as a data set, rotated by their EXIF orientation or not.

    None: not rotated, except for sets with their own setting (`ImageFolder`, `ImageList`).
    """
    found = _decided(images, upright=bool(upright))
    if isinstance(found, (ImageFiles, ArchivedImages)) and upright not in (None, found.upright):
        return found.turned(bool(upright))
    return found


def describe_skipped(images: Given) -> list[str]:
    """Describe the files of a folder that are not images, in at most one line."""
    given = images.root if isinstance(images, ImageFolder) else images
    folder = os.fspath(given) if isinstance(given, (str, os.PathLike)) and os.path.isdir(given) else ""
    return [line for line in [count_skipped(folder)] if line] if folder else []


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


def _decided(images: Given, *, upright: bool) -> ImageSet:
    if isinstance(images, IndexedImages):
        return images
    if isinstance(images, StandardInput):
        return ImageFiles(images.name, "", (path for path, _ in images.pairs()), upright=upright)
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


def _of_path(given: str, upright: bool) -> ImageSet:
    """By the ending: archives and tables, wherever they lie; else files or an address."""
    if given == "-":
        return _decided(StandardInput(), upright=upright)
    if not os.path.isdir(given) and given.lower().endswith((".tar", *PACKED)):
        return TarImages(given, upright=upright)
    if not os.path.isdir(given) and given.lower().endswith(PARQUET):
        return ParquetImages(given, upright=upright)
    return list_files(given, upright=upright)


def _of_items(images: Iterable[Any], upright: bool) -> ImageFiles | SequenceImages:
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
    name = format_count(len(items), "image")
    if all(isinstance(item, (str, os.PathLike)) for item in items):
        return ImageFiles(name, "", map(os.fspath, items), upright=upright)
    return SequenceImages(items, name, upright=upright)


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
