"""Image files as data sets: a folder with or without class folders, and a list of files."""

from __future__ import annotations

import csv
import os
import re
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import TextIO

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.core.reading import one_line
from oodshape.images import identity
from oodshape.images.decode import open_image, read_image
from oodshape.images.image_set import Image
from oodshape.images.walking import labelled


class ImageFiles:
    """Files below a folder, with a label each (-1: none), decoded one by one when asked for."""

    classes: tuple[str, ...] = ()  # the names behind the labels, where folders give them
    upright = True  # turned as their EXIF orientation says

    def __init__(self, name: str, root: Path, files: Sequence[str], labels: NDArray[np.int64]) -> None:
        """Use `ImageFolder` or `ImageList`, which find the files."""
        self.name = name
        self.root = root
        self.files = files
        self.labels = labels

    def __len__(self) -> int:
        """The number of images."""
        return len(self.files)

    def __getitem__(self, index: int) -> PIL.Image.Image:
        """The image as RGB."""
        return read_image(self.path(index), upright=self.upright)

    def opened(self, index: int) -> Image:
        """The image as a preprocessing takes it: a large one as it is stored."""
        return open_image(self.path(index), upright=self.upright)

    def __repr__(self) -> str:
        """The folder and the number of images."""
        return f"{type(self).__name__}({str(self.root)!r}, {len(self)} images)"

    def path(self, index: int) -> Path:
        """Where an image lies."""
        return self.root / self.files[index]

    def paths(self) -> list[str]:
        """Where the images lie."""
        return [os.path.join(self.root, file) for file in self.files]

    @property
    def fingerprint(self) -> str:
        """A hash of the names, sizes, times of the last change and labels; read from the disk every time."""
        stamps = np.empty((len(self), 2), np.int64)
        for row, file in enumerate(self.files):
            try:
                status = os.stat(os.path.join(self.root, file))
            except OSError as error:
                raise InputError(f"{self.path(row)} has gone since {self.name} was opened: {error.strerror}") from None
            stamps[row] = status.st_size, status.st_mtime_ns
        return fingerprint_of("\0".join(self.files).encode(errors="surrogateescape"), stamps, self.labels)

    @cached_property
    def identities(self) -> identity.Keys:
        """[N]: which image each is, by its path below the folder."""
        return identity.of_paths(self.files)


class ImageFolder(ImageFiles):
    """All images below a folder, subfolders included, in the order of their names.

    Each folder directly below `root` is a class, labelled by its place among the sorted names; empty ones count.
    Where images lie in `root` itself, its subfolders are no classes, and every label is -1. Hidden files and
    folders (a leading dot) are left out.
    """

    def __init__(self, root: str | Path, *, name: str | None = None) -> None:
        """Look for the images below `root`; the set takes the folder's name unless it is given one."""
        root = Path(root)
        if not root.is_dir():
            raise InputError(f"there is no folder {root}")
        files, labels, self.classes = labelled(root)
        super().__init__(name or root.resolve().name, root, files, labels)


class ImageList(ImageFiles):
    """The images that a text file lists: one path per line, then a label if there is one (`cats/a 1.png 3`).

    A CSV file needs the header `path` or `path,label`. Paths are relative to `root`, or to the list's folder.
    """

    def __init__(self, path: str | Path, root: str | Path | None = None, *, name: str | None = None) -> None:
        """Read the list; the set takes its file name unless it is given one."""
        path = Path(path)
        root = path.parent if root is None else Path(root)
        pairs = list(list_pairs(path))
        files = [file for file, _ in pairs]
        missing = [file for file in files if not os.path.isfile(os.path.join(root, file))]
        if missing:
            some = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
            raise InputError(
                f"{len(missing)} of the {len(files)} files in {path} do not lie in {root}: {some}; "
                "root=... says where they are"
            )
        labels = np.array([label for _, label in pairs], np.int64)
        super().__init__(name or path.stem, root, files, labels)


def list_pairs(path: Path) -> Iterator[tuple[str, int]]:
    """The paths in a text or CSV list with their labels, -1 where there is none; read line by line."""
    is_csv, empty = path.suffix.lower() == ".csv", True
    try:
        with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="" if is_csv else "\n") as file:
            for pair in _csv_pairs(path, file) if is_csv else _text_pairs(file):
                empty = False
                yield pair
    except OSError as error:
        raise InputError(f"cannot read the image list {path}: {error.strerror}") from None
    except (csv.Error, ValueError, LookupError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"the image list {path} is damaged ({type(error).__name__}: {one_line(error)})") from None
    if empty:
        raise InputError(f"the image list {path} is empty; it needs one path per line, and a label where known")


def _text_pairs(file: TextIO) -> Iterator[tuple[str, int]]:
    """A line's path, which may hold spaces, and its label."""
    for line in map(str.strip, file):
        if match := re.fullmatch(r"(.*\S)\s+([+-]?\d+)", line):
            yield match[1], _label(match[2])
        elif line:
            yield line, -1


def _csv_pairs(path: Path, file: TextIO) -> Iterator[tuple[str, int]]:
    rows = csv.DictReader(file, skipinitialspace=True)
    if rows.fieldnames and "path" not in rows.fieldnames:
        raise InputError(f"{path} needs the header path,label (or path), but starts {','.join(rows.fieldnames)!r}")
    for row in rows:
        label = (row.get("label") or "").strip()
        if label and not re.fullmatch(r"[+-]?\d+", label):
            raise InputError(f"{path}, line {rows.line_num}: the label must be a whole number, got {label!r}")
        yield row["path"] or "", _label(label or "-1")


def _label(digits: str) -> int:
    return max(int(digits), -1)
