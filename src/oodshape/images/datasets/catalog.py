"""The catalog of the benchmarks' data sets, their state below a data folder, and `open_dataset`.

A source of images is `digits:train`, `folder:PATH`, `list:PATH`, `array:PATH.npz` or `catalog:imagenet/Texture`.
"""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import Literal, cast

from oodshape.core.errors import InputError
from oodshape.core.files import reading
from oodshape.images.datasets import imagenet
from oodshape.images.datasets.cifar_mnist_svhn import read_cifar, read_mnist, read_svhn
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.datasets.download_sources import Download, describe_sources, list_sources
from oodshape.images.decode.limits import read_limited_npz
from oodshape.images.sources.image_files import ImageFolder, ImageList
from oodshape.images.sources.image_set import ArraySet, ImageSet

Role = Literal["train", "test", "near", "far", "val", "shifted"]
DatasetReader = Callable[..., ImageSet]  # (folder, name=...) -> the set in it
ONE = ("train", "test", "val")  # the roles that only one set of a benchmark has


@dataclass(frozen=True)
class DatasetLayout:
    """A layout of a set below the data folder: its folder, its reader, and a pattern that must match in the folder.

    `list_file` is another file below the data folder that is needed: the list of the images.
    """

    folder: str
    read: DatasetReader = field(repr=False)
    marker: str = ""
    list_file: str = ""

    def is_present(self, root: Path) -> bool:
        """Whether the folder, a file that matches the pattern, and the file `list_file` exist."""
        folder = root / self.folder
        found = any(folder.glob(self.marker)) if self.marker else folder.is_dir()
        return found and (not self.list_file or (root / self.list_file).is_file())


class MissingDataset(InputError):
    """A data set that is not on this machine; the message says where to get it and where to put it."""


@dataclass(frozen=True)
class DatasetEntry:
    """A data set: its name, its number of images (None: the paper gives none), its layouts, its sources."""

    name: str
    images: int | None
    layouts: tuple[DatasetLayout, ...]
    source_names: tuple[str, ...]  # in the table of sources
    listed: str = ""  # the file below the data folder that lists its images
    md5: str = ""  # of that file, where it is known

    def find(self, root: str | Path) -> DatasetLayout | None:
        """The first layout that is present, the official one before folders of images."""
        return next((layout for layout in self.layouts if layout.is_present(Path(root))), None)

    @property
    def sources(self) -> list[Download]:
        """The published files that it consists of."""
        return [source for name in self.source_names for source in list_sources()[name]]

    def needed(self, root: Path) -> list[Download]:
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
            more = "" if all(source.is_verified or source.by_hand for source in needed) else " --unverified"
            command = "" if by_hand else f"run `oodshape data get {names} --data {root}{more}`, or "
            raise MissingDataset(
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


class DatasetCollection(list[tuple[Role, DatasetEntry]]):
    """The data sets of one benchmark with their roles. All OOD sets count equally in an average.

    `near` and `far` are only labels. `val` are ID images for fitting some methods, `shifted` ID images under a
    covariate shift.
    """

    def named(self) -> dict[str, DatasetEntry]:
        """The sets by their role, or by their name where several have the role."""
        return {role if role in ONE else entry.name: entry for role, entry in self}


def open_list(images: Path, /, *, name: str, path: str) -> ImageList:
    """The images of a list, given the folder that its paths start from; OpenOOD ignores their EXIF orientation."""
    return ImageList(images.parent / path, images, name=name, upright=False)


def _collections(file: str, make: Callable[[dict[str, str]], DatasetEntry]) -> dict[str, DatasetCollection]:
    """The benchmarks of a table by name."""
    found: dict[str, DatasetCollection] = {}
    text = (files("oodshape.images.datasets") / file).read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        found.setdefault(row["benchmark"], DatasetCollection()).append((cast(Role, row["role"]), make(row)))
    return found


def _listed(row: dict[str, str]) -> DatasetEntry:
    """A set of OpenOOD: what its list names in its folder of images."""
    path, (below, home) = f"benchmark_imglist/{row['list']}", row["folder"].split("/")
    layouts = [DatasetLayout(below, partial(open_list, path=path), home, path)]
    if row["list"] == "imagenet/train_imagenet.txt":  # all images of all classes: their folders say the same
        layouts.append(DatasetLayout(f"{row['folder']}/train", ImageFolder))
    images = int(row["images"]) if row["images"] else None
    return DatasetEntry(row["name"], images, tuple(layouts), ("openood-lists", f"openood-{home}"), path, row["md5"])


@dataclass(frozen=True)
class DatasetStatus:
    """The state of one set; a damaged set and one that differs from the published one have a reason."""

    benchmark: str
    role: Role
    entry: DatasetEntry
    state: Literal["found", "missing", "damaged", "differs"]
    images: int | None = None
    reason: str = ""


def list_status(root: str | Path, benchmark: str) -> list[DatasetStatus]:
    """The state of each set of a benchmark below a data folder."""
    return [_status(benchmark, role, entry, root) for role, entry in CATALOG[benchmark]]


def _status(benchmark: str, role: Role, entry: DatasetEntry, root: str | Path) -> DatasetStatus:
    try:
        if entry.find(root) is None:
            return DatasetStatus(benchmark, role, entry, "missing")
        images = len(entry.open(root))
        other = entry.differs(root, images)
        return DatasetStatus(benchmark, role, entry, "differs" if other else "found", images, other)
    except (InputError, OSError) as error:
        return DatasetStatus(benchmark, role, entry, "damaged", reason=str(error))


# by their names in catalog.csv
READERS: dict[str, DatasetReader] = {
    "folder": ImageFolder,
    "mnist": read_mnist,
    "svhn": read_svhn,
    "imagenet-val": imagenet.imagenet_val,
    "imagenet-val.tar": imagenet.imagenet_val_tar,
    "imagenet-train.tar": imagenet.imagenet_train_tar,
    "imagenet-train.parquet": partial(imagenet.imagenet_parquet, files="train-*.parquet"),
    "imagenet-validation.parquet": partial(imagenet.imagenet_parquet, files="validation-*.parquet"),
    "imagenet-v2-train": partial(imagenet.imagenet_v2, part="train"),
    "imagenet-v2-test": partial(imagenet.imagenet_v2, part="test"),
    "cifar10-train": partial(read_cifar, kind=10, train=True),
    "cifar10-test": partial(read_cifar, kind=10, train=False),
    "cifar100-train": partial(read_cifar, kind=100, train=True),
    "cifar100-test": partial(read_cifar, kind=100, train=False),
}


def _published(row: dict[str, str]) -> DatasetEntry:
    """The set of a row: its layouts are `reader folder marker`, the official one first.

    The paper gives no number for Places365 on CIFAR; 10,000 is what is drawn to test such networks
    (github.com/deeplearning-wisc/SNN).
    """
    layouts = [text.split() for text in row["layouts"].split(";")]
    made = tuple(DatasetLayout(folder, READERS[reader], *marker) for reader, folder, *marker in layouts)
    return DatasetEntry(row["name"], int(row["images"]) if row["images"] else None, made, (row["source"],))


CATALOG = {**_collections("catalog.csv", _published), **_collections("openood.csv", _listed)}


FORMS = "digits:NAME, folder:PATH, list:PATH, array:PATH.npz, catalog:BENCHMARK/SET"


def open_dataset(source: str, base: Path, data: Path | None = None, *, any_list: bool = False) -> ImageSet:
    """Open the data set that a source names; paths are relative to `base`, catalogued sets to `data`.

    A list that is not the published one is refused, unless `any_list` will do.
    """
    kind, colon, rest = source.partition(":")
    if not colon or not rest:
        raise InputError(f"a data source has one of the forms {FORMS}; got {source!r}")
    path = base / Path(rest).expanduser()
    if kind == "digits":
        if rest not in _all_digits():
            raise InputError(f"digits has no set {rest!r}; there are {', '.join(_all_digits())}")
        return _all_digits()[rest]
    if kind == "catalog":
        return _catalogued(rest, data, any_list)
    if kind not in ("folder", "list", "array"):
        raise InputError(f"{kind!r} is no kind of data source; the forms are {FORMS}")
    if not path.exists():
        raise MissingDataset(f"there is no {path}")
    if kind == "array":
        return _array(path)
    return ImageFolder(path) if kind == "folder" else ImageList(path)


_all_digits = cache(load_digits_sets)


def _catalogued(rest: str, data: Path | None, any_list: bool) -> ImageSet:
    benchmark, _, name = rest.partition("/")
    if benchmark not in CATALOG:
        raise InputError(f"the catalog has no benchmark {benchmark!r}; there are {', '.join(CATALOG)}")
    rows = CATALOG[benchmark].named()
    if name not in rows:
        raise InputError(f"{benchmark} has no set {name!r}; there are {', '.join(rows)}")
    if data is None:
        raise MissingDataset(f"{rows[name].name}: name the folder of the data with --data DIR or OODSHAPE_DATA")
    images = rows[name].open(data)
    other = "" if any_list else rows[name].differs(data, len(images))
    if other:
        raise InputError(f"{other}; get the published lists, or take these as they are with --other-lists")
    return images


def _array(path: Path) -> ArraySet:
    """An .npz file with `images` (uint8) and, where there are any, `labels`."""
    way_out = "it must be an .npz file with `images` and perhaps `labels`"
    with reading(path, way_out):
        found = read_limited_npz(path)
        if found.keys() - {"images", "labels"} or "images" not in found:
            raise InputError(f"{path} holds {', '.join(found) or 'nothing'}; {way_out}")
        return ArraySet(path.stem, **found)
