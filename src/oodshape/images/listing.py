"""Images as users have them: a folder, a list, a glob, standard input or one file; in order, read when needed."""

from __future__ import annotations

import glob
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image

from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.core.reading import any_names
from oodshape.images import identity
from oodshape.images.decode import read_image
from oodshape.images.folders import ImageFiles, ImageFolder, list_pairs
from oodshape.images.limits import Limits
from oodshape.images.walking import no_image, walked

LISTS = (".txt", ".lst", ".list", ".csv")
Given = str | Path | Sequence[str | Path]
ACCEPTED = "images are a folder, a list, a glob, an image file, - for standard input, or a sequence of paths"


@dataclass(frozen=True)
class Listing:
    """Image files in their order, each with a label (-1: none): nothing is opened before it is asked for.

    `given` is a folder, a text or CSV list, a glob, `-` for standard input (one path a line), an image file, or
    a sequence of paths. The paths of a list are relative to the list's folder.
    """

    given: str | tuple[str, ...]

    @classmethod
    def of(cls, images: Given | Listing) -> Listing:
        """The listing of what a user gave; what is no path and no sequence of paths is refused."""
        if isinstance(images, Listing):
            return images
        if isinstance(images, (str, os.PathLike)):
            return cls(os.fspath(images))
        return cls(tuple(_paths(images)))

    def __iter__(self) -> Iterator[tuple[str, int]]:
        """(path, label) one by one."""
        given = self.given
        if isinstance(given, tuple):
            return ((path, -1) for path in given)
        if given == "-":
            return ((line.rstrip("\r\n"), -1) for line in any_names(sys.stdin) if line.strip())
        if os.path.isdir(given):
            return _below(given)
        if os.path.isfile(given):
            return list_pairs(Path(given)) if given.lower().endswith(LISTS) else iter([(given, -1)])
        if glob.has_magic(given):
            return _matched(given)
        raise InputError(f"there is no file or folder {given}, and it is no glob such as 'photos/**/*.jpg'")

    @property
    def name(self) -> str:
        """A short name for messages: the folder's or the file's."""
        if isinstance(self.given, tuple):
            return f"{len(self.given)} images"
        return "standard input" if self.given == "-" else Path(self.given).resolve().name

    def count(self) -> int | None:
        """The number of images; None for standard input, which cannot be read twice."""
        return None if self.given == "-" else sum(1 for _ in self)

    def file(self, path: str) -> str:
        """Where a listed path lies."""
        given = self.given
        is_list = isinstance(given, str) and given.lower().endswith(LISTS) and os.path.isfile(given)
        return os.path.join(os.path.dirname(str(given)), path) if is_list else path

    def read(self, pair: tuple[str, int], *, upright: bool) -> PIL.Image.Image:
        """The image that a listed path stands for."""
        return read_image(self.file(pair[0]), upright=upright)

    def below_root(self, path: str) -> str:
        """A listed path from the given root: that of a glob is the folder before its first sign; else as listed."""
        if not isinstance(self.given, str) or os.path.isfile(self.given) or not glob.has_magic(self.given):
            return path
        fixed = os.path.dirname(re.split(r"[*?[]", self.given, maxsplit=1)[0])
        return os.path.relpath(path, fixed) if fixed else path


class GivenImages(ImageFiles):
    """The images of a listing as a data set; files that are missing or broken are errors only when they are read."""

    def __init__(self, images: Given | Listing, *, upright: bool = False) -> None:
        """List the images; class folders give labels and their names are `classes`."""
        listing = Listing.of(images)
        self.upright = upright
        if isinstance(listing.given, str) and os.path.isdir(listing.given):
            folder = ImageFolder(listing.given)
            self.classes = folder.classes
            files, labels = [str(folder.path(row)) for row in range(len(folder))], folder.labels
            self._names: Sequence[str] = folder.files
        else:
            pairs = list(listing)
            files = [listing.file(path) for path, _ in pairs]
            self._names = [listing.below_root(path) for path, _ in pairs]
            labels = np.array([label for _, label in pairs], np.int64)
        if not files:
            raise InputError(f"{listing.name} lists no image")
        super().__init__(listing.name, Path(), files, labels)

    @cached_property
    def identities(self) -> identity.Keys:
        """[N]: which image each is, by its path below the given folder, or as it was listed."""
        return identity.of_paths(self._names)

    @property
    def fingerprint(self) -> str:
        """A hash of paths, sizes, times of the last change, labels, the way they are turned, and own limits."""
        stamps = np.array([_stamp(file) for file in self.files], np.int64)
        names = "\0".join(self.files).encode(errors="surrogateescape")
        return fingerprint_of(names, stamps, self.labels, f"upright={self.upright}", *Limits.now().words)


def chunks(listing: Iterator[tuple[str, int]], size: int) -> Iterator[list[tuple[str, int]]]:
    """Consecutive runs of at most `size` images."""
    while part := list(islice(listing, size)):
        yield part


def _paths(images: Any) -> Iterator[str]:
    """The paths in a sequence of them; an error at the first thing that is none."""
    if not isinstance(images, Iterable) or isinstance(images, Mapping):
        raise InputError(f"{ACCEPTED}, got {type(images).__name__}")
    for place, path in enumerate(images):
        if not isinstance(path, (str, os.PathLike)):
            raise InputError(f"{ACCEPTED}, got {type(images).__name__} with {type(path).__name__} at place {place}")
        yield os.fspath(path)


def _stamp(file: str) -> tuple[int, int]:
    try:
        status = os.stat(file)
    except OSError:
        return -1, -1
    return status.st_size, status.st_mtime_ns


def _below(folder: str) -> Iterator[tuple[str, int]]:
    """The images below a folder, one by one."""
    found = False
    for place, _, files in walked(folder):
        for file in files:
            found = True
            yield os.path.join(folder, place, file), -1
    if not found:
        raise no_image(folder)


def _matched(pattern: str) -> Iterator[tuple[str, int]]:
    matches = sorted(path for path in glob.iglob(pattern, recursive=True) if os.path.isfile(path))
    if not matches:
        raise InputError(f"no file matches {pattern}")
    return ((path, -1) for path in matches)
