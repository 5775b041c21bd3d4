"""The parts of the catalog: a data set with its possible layouts on a disk, and the data sets of a benchmark."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, Protocol

from oodshape.core.errors import InputError
from oodshape.images.datasets.sources import Source, all_sources, describe_sources
from oodshape.images.sources.image_set import ImageSet

Role = Literal["train", "test", "near", "far", "val", "ood-val", "shifted"]
ONE = ("train", "test", "val", "ood-val")  # the roles that only one set of a benchmark has


class Reader(Protocol):
    """A function that opens a folder as a set with a given name."""

    def __call__(self, root: Path, /, *, name: str) -> ImageSet:
        """The set."""


@dataclass(frozen=True)
class Layout:
    """A layout of a set below the data folder: its folder, its reader, and a pattern that must match in the folder.

    `beside` is another file below the data folder that is needed: the list of the images.
    """

    folder: str
    read: Reader = field(repr=False)
    marker: str = ""
    beside: str = ""

    def is_present(self, root: Path) -> bool:
        """Whether the folder, a file that matches the pattern, and the file `beside` exist."""
        folder = root / self.folder
        found = any(folder.glob(self.marker)) if self.marker else folder.is_dir()
        return found and (not self.beside or (root / self.beside).is_file())


class Missing(InputError):
    """A data set that is not on this machine; the message says where to get it and where to put it."""


@dataclass(frozen=True)
class Entry:
    """A data set: its name, its number of images (None: the paper gives none), its layouts, its sources."""

    name: str
    images: int | None
    layouts: tuple[Layout, ...]
    source_names: tuple[str, ...]  # in the table of sources
    listed: str = ""  # the file below the data folder that lists its images
    md5: str = ""  # of that file, where it is known

    def find(self, root: str | Path) -> Layout | None:
        """The first layout that is present, the official one before folders of images."""
        return next((layout for layout in self.layouts if layout.is_present(Path(root))), None)

    @property
    def sources(self) -> list[Source]:
        """The published files that it consists of."""
        return [source for name in self.source_names for source in all_sources()[name]]

    def needed(self, root: Path) -> list[Source]:
        """The published files that are not below a data folder; none where the set is there in another layout."""
        needed = [source for source in self.sources if not (root / source.to).exists()]
        return [] if len(needed) == len(self.sources) and self.find(root) is not None else needed

    def open(self, root: str | Path) -> ImageSet:
        """The set below a data folder, under its name here."""
        layout = self.find(root)
        if layout is None:
            needed = self.needed(Path(root)) or self.sources
            puts = " and ".join(str(Path(root) / source.put) for source in needed)
            names = " ".join(dict.fromkeys(source.name for source in needed))
            by_hand = all(source.by_hand and not source.is_archive for source in needed)
            command = "" if by_hand else f"run `oodshape data get {names} --data {root}`, or "
            raise Missing(
                f"{self.name}: not below {root}; {command}get {describe_sources(needed)}, and put it at {puts}"
            )
        return layout.read(Path(root) / layout.folder, name=self.name)

    def differs(self, root: str | Path, images: int) -> str:
        """How the list below a data folder differs from the published one; empty where it does not, or has no list."""
        file = Path(root) / self.listed
        if not self.listed or not file.is_file():
            return ""
        if self.images is not None and images != self.images:
            return f"{file} lists {images:,} images, the published list {self.images:,}"
        content = file.read_bytes().replace(b"\r\n", b"\n")
        versions = (content, content.rstrip(b"\n"), content.rstrip(b"\n") + b"\n")  # the end of the file may differ
        if self.md5 and self.md5 not in {hashlib.md5(text, usedforsecurity=False).hexdigest() for text in versions}:
            return f"{file} lists other images, or in another order, than the published list (md5 {self.md5})"
        return ""


class Collection(list[tuple[Role, Entry]]):
    """The data sets of one benchmark with their roles. All OOD sets count equally in an average.

    `near` and `far` are only labels. `val` are ID images and `ood-val` OOD images for the selection of settings;
    `shifted` are ID images under a covariate shift.
    """

    def named(self) -> dict[str, Entry]:
        """The sets by their role, or by their name where several have the role."""
        return {role if role in ONE else entry.name: entry for role, entry in self}
