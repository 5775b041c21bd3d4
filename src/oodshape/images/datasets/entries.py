"""What a table of data sets is made of: a set with the ways it may lie on a disk, and the sets of a benchmark."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from oodshape.core.errors import InputError
from oodshape.images.sources.image_set import ImageSet

Role = Literal["train", "test", "near", "far", "val", "ood-val", "shifted"]
ONE = ("train", "test", "val", "ood-val")  # the roles that only one set of a benchmark has


class Reader(Protocol):
    """Opens a folder as a set of a given name."""

    def __call__(self, root: Path, /, *, name: str) -> ImageSet:
        """The set."""


@dataclass(frozen=True)
class Layout:
    """A way in which a set may lie below the data root: the folder, its reader, and a pattern that shows it.

    `beside` is a file below the root without which the folder says nothing: the list of its images.
    """

    folder: str
    read: Reader = field(repr=False)
    marker: str = ""
    beside: str = ""

    def lies_below(self, root: Path) -> bool:
        """Whether the folder is there, something in it that fits the pattern, and the file beside it."""
        folder = root / self.folder
        there = any(folder.glob(self.marker)) if self.marker else folder.is_dir()
        return there and (not self.beside or (root / self.beside).is_file())


@dataclass(frozen=True)
class Entry:
    """A data set: its images (None: the paper gives no number), where to get and put it, its layouts."""

    name: str
    images: int | None
    get: str
    put: str
    layouts: tuple[Layout, ...]
    listed: str = ""  # the file below the data root that lists its images
    md5: str = ""  # of that file, where it is known

    def find(self, root: str | Path) -> Layout | None:
        """The first layout that is there, the official one before folders of images."""
        return next((layout for layout in self.layouts if layout.lies_below(Path(root))), None)

    def open(self, root: str | Path) -> ImageSet:
        """The set below a data root, under its name here."""
        layout = self.find(root)
        if layout is None:
            raise InputError(f"no {self.name} below {root}: get {self.get}, and put it at {Path(root) / self.put}")
        return layout.read(Path(root) / layout.folder, name=self.name)

    def differs(self, root: str | Path, images: int) -> str:
        """In which way the list below a data root is not the published one; nothing where it is, or there is none."""
        file = Path(root) / self.listed
        if not self.listed or not file.is_file():
            return ""
        if self.images is not None and images != self.images:
            return f"{file} lists {images:,} images, the published list {self.images:,}"
        content = file.read_bytes().replace(b"\r\n", b"\n")
        ends = (content, content.rstrip(b"\n"), content.rstrip(b"\n") + b"\n")  # of the file: no matter
        if self.md5 and self.md5 not in {hashlib.md5(text, usedforsecurity=False).hexdigest() for text in ends}:
            return f"{file} lists other images, or in another order, than the published list (md5 {self.md5})"
        return ""


@dataclass(frozen=True)
class Collection:
    """The data of one benchmark. All OOD sets count equally in an average; near and far are only labels.

    `val` are ID images and `ood_val` OOD images to choose settings by, `shifted` are ID images of another look.
    """

    train: Entry
    test: Entry
    near: tuple[Entry, ...]
    far: tuple[Entry, ...]
    val: Entry | None = None
    ood_val: Entry | None = None
    shifted: tuple[Entry, ...] = ()

    def __iter__(self) -> Iterator[tuple[Role, Entry]]:
        """Every set with its role."""
        yield "train", self.train
        yield "test", self.test
        yield from (("near", entry) for entry in self.near)
        yield from (("far", entry) for entry in self.far)
        if self.val is not None:
            yield "val", self.val
        if self.ood_val is not None:
            yield "ood-val", self.ood_val
        yield from (("shifted", entry) for entry in self.shifted)

    def named(self) -> dict[str, Entry]:
        """The sets by their role, or by their name where many have the role."""
        return {role if role in ONE else entry.name: entry for role, entry in self}
