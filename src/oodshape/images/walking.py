"""The images below a folder, in one order for all: a folder's own before those of its subfolders, both by name."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.images.formats import EXTENSIONS

Place = tuple[int, int]  # device and number: which folder it is, whatever its name


def walked(root: str | Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """(folder, its subfolders, its images) for a folder and all below; folders as paths from `root`, which is "".

    Hidden files and folders (a leading dot) are left out, folders that may not be read are empty, links are followed,
    but not back to a folder that they lie in. Only the names of one folder are held at a time.
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
        files = [entry.name for entry in entries if entry.name.lower().endswith(EXTENSIONS) and not entry.is_dir()]
        yield folder, folders, files
        waiting += [(os.path.join(folder, name), above) for name in reversed(folders)]


class Found(NamedTuple):
    """The images below a folder, as paths from it, with their labels and the names behind these."""

    files: list[str]
    labels: NDArray[np.int64]
    classes: tuple[str, ...]


def labelled(root: str | Path) -> Found:
    """All images below a folder, labelled by the folder directly below `root` that they lie in.

    That is its place among the sorted names; empty ones count. Where images lie in `root` itself, its subfolders are
    no classes, and every label is -1.
    """
    files, labels = list[str](), list[int]()
    number: dict[str, int] = {}
    for folder, folders, found in walked(root):
        if not folder and not found:
            number = {name: label for label, name in enumerate(folders)}
        files += [os.path.join(folder, file) for file in found]
        labels += [number.get(folder.partition(os.sep)[0], -1)] * len(found)
    if not files:
        raise no_image(root)
    return Found(files, np.array(labels, np.int64), tuple(number))


def no_image(root: str | Path) -> InputError:
    """What to say where nothing was found."""
    return InputError(f"no image lies in {root} or its subfolders; looked for {' '.join(EXTENSIONS)}")


def _is_folder(entry: os.DirEntry[str], above: tuple[Place, ...]) -> bool:
    """Whether it is a folder to go into: no link to one that it lies in."""
    try:
        return entry.is_dir() and not (entry.is_symlink() and _place(entry.path) in above)
    except OSError:  # gone by now
        return False


def _place(path: str) -> Place:
    status = os.stat(path)
    return status.st_dev, status.st_ino
