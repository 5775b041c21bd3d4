"""Image files as data sets: a folder with or without class folders, a list of files, or the files of a glob."""

from __future__ import annotations

import csv
import glob
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import bounded_lines, reading
from oodshape.core.text import format_count
from oodshape.images import identity
from oodshape.images.decode.formats import EXTENSIONS, open_format
from oodshape.images.decode.read import open_image
from oodshape.images.sources.image_set import Image, IndexedImages
from oodshape.images.sources.storage import is_remote, match_remote, no_image, stamp_file

# Files that lie next to images and are not opened to look.
NO_IMAGES = (".txt", ".csv", ".json", ".jsonl", ".xml", ".yaml", ".yml", ".md", ".html", ".npy", ".npz", ".pt", ".py")
Place = tuple[int, int]  # device and number: which folder it is, whatever its name


class PackedTexts(Sequence[str]):
    """Many texts in one piece of memory: a list of them takes four times as much.

    >>> list(PackedTexts(["a.png", "b/c.png"]))
    ['a.png', 'b/c.png']
    """

    def __init__(self, texts: Iterable[str]) -> None:
        ends, together = array("q", [0]), bytearray()
        for text in texts:
            together += text.encode(errors="surrogateescape")
            ends.append(len(together))
        self._ends, self._together = ends, bytes(together)

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, index: Any) -> Any:
        """One of the texts."""
        index = range(len(self))[index]
        return self._together[self._ends[index] : self._ends[index + 1]].decode(errors="surrogateescape")


class ImageFiles(IndexedImages):
    """Files with a label each (-1: none), decoded one by one when asked for; one that has gone is then an error.

    `names` are paths below `root`, by which images are identified, or addresses. In rows and messages an image has
    its whole path, or with `by_name` its name alone.
    """

    def __init__(
        self,
        name: str,
        root: str | Path,
        names: Iterable[str],
        labels: NDArray[np.int64] | None = None,
        *,
        classes: tuple[str, ...] = (),
        upright: bool = True,
        by_name: bool = False,
    ) -> None:
        self.name, self.root, self.classes = name, str(root), classes
        self.names = names if isinstance(names, PackedTexts) else PackedTexts(names)
        if not self.names:
            raise InputError(f"{name} lists no image")
        self.labels = np.full(len(self.names), -1, np.int64) if labels is None else labels
        self.upright, self.by_name = upright, by_name

    def __len__(self) -> int:
        return len(self.names)

    def path(self, index: int) -> str:
        """Where an image lies."""
        name = self.names[index]
        return name if is_remote(name) else os.path.join(self.root, name)

    @property
    def files(self) -> list[str]:
        """Where the images lie."""
        return list(map(self.path, range(len(self))))

    def called(self, index: int) -> str:
        """The path of an image, or its name alone."""
        return self.names[index] if self.by_name else self.path(index)

    def _open(self, index: int, upright: bool) -> Image:
        return open_image(self.path(index), upright=upright)

    def _stamps(self, contents: bool) -> tuple[Any, ...]:
        return ("\n".join(stamp_file(file, contents=contents) for file in self.files),)

    @cached_property
    def identities(self) -> identity.Keys:
        """[N]: which image each is, by its path below the folder."""
        return identity.from_paths(self.names)


class ImageFolder(ImageFiles):
    """All images below a folder, subfolders included, sorted by name.

    Each folder directly below `root` is a class, labelled by its place among the sorted names; empty folders count. If
    images are in `root` itself, its subfolders are not classes, and every label is -1. Hidden files and folders (a
    leading dot) are left out.

    >>> ImageFolder("missing")
    Traceback (most recent call last):
    ...
    oodshape.core.errors.InputError: ...
    """

    def __init__(self, root: str | Path, *, name: str | None = None, upright: bool = True) -> None:
        """List the images below a folder.

        Args:
            root: The folder.
            name: The name of the set; by default the folder's.
            upright: Rotate images as their EXIF orientation says.
        """
        root = Path(root)
        if not root.is_dir():
            raise InputError(f"there is no folder {root}")
        files, labels, number = list[str](), list[int](), dict[str, int]()
        for folder, folders, found in _walk_folder(root):
            if not folder and not found:
                number = {each: label for label, each in enumerate(folders)}
            files += [os.path.join(folder, file) for file in found]
            labels += [number.get(folder.partition(os.sep)[0], -1)] * len(found)
        if not files:
            raise no_image(root)
        super().__init__(
            name or root.resolve().name, root, files, np.array(labels, np.int64), classes=tuple(number), upright=upright
        )


class ImageList(ImageFiles):
    """The images that a text file lists: one path per line, optionally followed by a label (`cats/a 1.png 3`).

    A CSV file needs the header `path` or `path,label`.

    >>> ImageList("missing.txt")
    Traceback (most recent call last):
    ...
    oodshape.core.errors.InputError: ...
    """

    def __init__(
        self, path: str | Path, root: str | Path | None = None, *, name: str | None = None, upright: bool = True
    ) -> None:
        """Read the list.

        Args:
            path: The list, text or CSV.
            root: The folder that relative paths start from; by default the list's folder.
            name: The name of the set; by default the file's.
            upright: Rotate images as their EXIF orientation says.
        """
        path = Path(path)
        root = path.parent if root is None else Path(root)
        files, labels = pack_image_list(path)
        missing = [file for file in files if not os.path.isfile(os.path.join(root, file))]
        if missing:
            some = ", ".join(missing[:5]) + (" ..." if len(missing) > 5 else "")
            raise InputError(
                f"{len(missing)} of the {len(files)} files in {path} do not lie in {root}: {some}; "
                "root=... says where they are"
            )
        super().__init__(name or path.stem, root, files, labels, upright=upright)


def label_by_folder(names: Sequence[str]) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """[N] labels by the first folder of each path, and the folders' names; without names where a path has none."""
    tops = [name.partition("/")[0] if "/" in name else "" for name in names]
    classes = () if "" in tops else tuple(sorted(set(tops)))
    number = {top: label for label, top in enumerate(classes)}
    return np.array([number.get(top, -1) for top in tops], np.int64), classes


def pack_image_list(path: Path) -> tuple[PackedTexts, NDArray[np.int64]]:
    """The paths in a text or CSV list, and their labels [N], without a pair in memory for each."""
    labels = array("q")

    def paths() -> Iterator[str]:
        for file, label in read_image_list(path):
            labels.append(label)
            yield file

    return PackedTexts(paths()), np.array(labels, np.int64)


def read_image_list(path: Path) -> Iterator[tuple[str, int]]:
    """The paths in a text or CSV list with their labels, -1 where there is none; read line by line."""
    is_csv, empty = path.suffix.lower() == ".csv", True
    newline = "" if is_csv else "\n"
    with (
        reading(path, "an image list has one path per line, and a label where known"),
        path.open(encoding="utf-8-sig", errors="surrogateescape", newline=newline) as file,
    ):
        lines = bounded_lines(file, f"the image list {path}")
        for pair in _csv_pairs(path, lines) if is_csv else _text_pairs(lines):
            empty = False
            yield pair
    if empty:
        raise InputError(f"the image list {path} is empty; it needs one path per line, and a label where known")


def _text_pairs(lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    """A line's path, which may hold spaces, and its label."""
    for line in map(str.strip, lines):
        if match := re.fullmatch(r"(.*\S)\s+([+-]?\d+)", line):
            yield match[1], _label(match[2])
        elif line:
            yield line, -1


def _csv_pairs(path: Path, lines: Iterable[str]) -> Iterator[tuple[str, int]]:
    rows = csv.DictReader(lines, skipinitialspace=True)
    if rows.fieldnames and "path" not in rows.fieldnames:
        raise InputError(f"{path} needs the header path,label (or path), but starts {','.join(rows.fieldnames)!r}")
    for row in rows:
        label = (row.get("label") or "").strip()
        if label and not re.fullmatch(r"[+-]?\d+", label):
            raise InputError(f"{path}, line {rows.line_num}: the label must be a whole number, got {label!r}")
        yield row["path"] or "", _label(label or "-1")


def _label(digits: str) -> int:
    return max(int(digits), -1)


def _walk_folder(root: str | Path, skipped: Counter[str] | None = None) -> Iterator[tuple[str, list[str], list[str]]]:
    """(folder, its subfolders, its images) for a folder and all below; folders as paths from `root`, which is "".

    Images are files with the extension of a format that can be read, or with its content. Other files are counted by
    their extensions in `skipped`. Hidden files and folders (a leading dot) are left out, folders that may not be read
    are empty, links are followed, but not back to a folder that they lie in. Only the names of one folder are held at a
    time.
    """
    waiting: list[tuple[str, tuple[Place, ...]]] = [("", ())]
    while waiting:
        folder, above = waiting.pop()
        path = os.path.join(root, folder)
        try:
            with os.scandir(path) as scan:
                entries = sorted((entry for entry in scan if entry.name[0] != "."), key=lambda entry: entry.name)
            above = (*above, _place(path))
        except OSError:
            continue
        folders = [entry.name for entry in entries if _is_folder(entry, above)]
        files = []
        for entry in entries:
            if _is_image(entry):
                files.append(entry.name)
            elif skipped is not None and os.path.isfile(entry.path):
                skipped[os.path.splitext(entry.name)[1].lower()] += 1
        yield folder, folders, files
        waiting += [(os.path.join(folder, name), above) for name in reversed(folders)]


def _is_image(entry: os.DirEntry[str]) -> bool:
    """Whether a file has the extension of an image, or an extension that says nothing and the content of one."""
    name = entry.name.lower()
    if name.endswith(EXTENSIONS):
        return not os.path.isdir(entry.path)
    if name.endswith(NO_IMAGES) or not os.path.isfile(entry.path):  # a pipe would be waited for
        return False
    try:
        with open_format(entry.path):
            return True
    except Exception:  # no image, or one so broken that its format is not known
        return False


def count_skipped(root: str | Path) -> str:
    """The files below a folder that are no images, by extension, in words; empty where there are none."""
    skipped = Counter[str]()
    for _ in _walk_folder(root, skipped):
        pass
    if not skipped:
        return ""
    each = ", ".join(f"{count:,} {end or 'without extension'}" for end, count in skipped.most_common())
    return (
        f"{format_count(skipped.total(), 'file')} of {root} {'is' if skipped.total() == 1 else 'are'} no image: {each}"
    )


def _is_folder(entry: os.DirEntry[str], above: tuple[Place, ...]) -> bool:
    """Whether it is a folder to go into: no link to one that it lies in."""
    try:
        return entry.is_dir() and not (entry.is_symlink() and _place(entry.path) in above)
    except OSError:  # gone by now
        return False


def _place(path: str) -> Place:
    status = os.stat(path)
    return status.st_dev, status.st_ino


def match_glob(pattern: str) -> list[str]:
    """The files that a path, a glob or an address stands for, sorted, each once."""
    if is_remote(pattern):
        return match_remote(pattern)
    if os.path.isfile(pattern):
        return [pattern]
    matches = sorted({path for path in _globbed(pattern) if os.path.isfile(path)})
    if not matches and not glob.has_magic(pattern):
        raise InputError(f"there is no file or folder {pattern}; a glob looks like 'photos/**/*.jpg'")
    if not matches:
        raise InputError(f"no file matches {pattern}")
    return matches


def _globbed(pattern: str) -> Iterator[str]:
    """The paths that a glob matches. `**` goes below folders as a walk does: links back are not followed for ever."""
    above, stars, after = f"{os.sep}{pattern}{os.sep}".partition(f"{os.sep}**{os.sep}")
    if not stars:
        yield from glob.iglob(pattern)
        return
    before, after = above[1:] + os.sep if above else "", after.removesuffix(os.sep)
    for root in glob.iglob(before) if before else [""]:
        if os.path.isdir(root or os.curdir):
            for folder, _, _ in _walk_folder(root or os.curdir):
                yield from _globbed(os.path.join(glob.escape(os.path.join(root, folder)), after or "*"))
