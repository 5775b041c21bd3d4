"""The catalog of the benchmarks' data sets, their state below a data folder, and `open_source`.

A source of images is `digits:train`, `folder:PATH`, `list:PATH`, `array:PATH.npz` or `catalog:imagenet/Texture`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Literal

from oodshape.core.errors import InputError
from oodshape.core.reading import reading
from oodshape.images.datasets.cifar_mnist_svhn import cifar, mnist, svhn
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.datasets.entries import Collection, Entry, Layout, Missing, Role
from oodshape.images.datasets.imagenet import (
    imagenet_parquet,
    imagenet_train_tar,
    imagenet_v2,
    imagenet_val,
    imagenet_val_tar,
)
from oodshape.images.datasets.openood import openood_collections
from oodshape.images.decode.limits import npz_within
from oodshape.images.sources.folders import ImageFolder, ImageList
from oodshape.images.sources.image_set import ArraySet, ImageSet


@dataclass(frozen=True)
class Status:
    """The state of one set; a damaged set and one that differs from the published one have a reason."""

    benchmark: str
    role: Role
    entry: Entry
    state: Literal["found", "missing", "damaged", "differs"]
    images: int | None = None
    reason: str = ""


def status(root: str | Path, benchmark: str) -> list[Status]:
    """The state of each set of a benchmark below a data folder."""
    return [_status(benchmark, role, entry, root) for role, entry in CATALOG[benchmark]]


def _status(benchmark: str, role: Role, entry: Entry, root: str | Path) -> Status:
    try:
        if entry.find(root) is None:
            return Status(benchmark, role, entry, "missing")
        images = len(entry.open(root))
        other = entry.differs(root, images)
        return Status(benchmark, role, entry, "differs" if other else "found", images, other)
    except (InputError, OSError) as error:
        return Status(benchmark, role, entry, "damaged", reason=str(error))


def _folders(name: str, images: int | None, *folders: str) -> Entry:
    """A set that is a folder of images."""
    return Entry(name, images, tuple(Layout(folder, ImageFolder) for folder in folders), (name.lower(),))


def _cifar(kind: Literal[10, 100], *, train: bool) -> Entry:
    """CIFAR in the layout of its binary archive, or as class folders."""
    home, part = f"cifar{kind}", "train" if train else "test"
    batch = part if kind == 100 else "data_batch_" if train else "test_batch"
    read, marker = partial(cifar, kind=kind, train=train), f"cifar-{kind}-*bin*/{batch}*"
    return Entry(
        f"CIFAR-{kind} train" if train else f"CIFAR-{kind}",
        50_000 if train else 10_000,
        (Layout(home, read, marker), Layout(".", read, marker), Layout(f"{home}/{part}", ImageFolder)),
        (f"cifar-{kind}",),
    )


def _imagenet(name: str, images: int, part: Literal["train", "val"]) -> Entry:
    """A part of ImageNet: the official tar, class folders, Kaggle's tree or the Parquet files of Hugging Face."""
    kaggle, parquet = f"imagenet/ILSVRC/Data/CLS-LOC/{part}", f"{'validation' if part == 'val' else part}-*.parquet"
    tar = Layout("imagenet", imagenet_train_tar if part == "train" else imagenet_val_tar, f"ILSVRC2012_img_{part}.tar")
    flat = [Layout(at, imagenet_val, "ILSVRC2012_val_*") for at in ("imagenet/val", kaggle) if part == "val"]
    folders = [Layout(at, ImageFolder) for at in (f"imagenet/{part}", kaggle)]
    rows = [Layout(at, partial(imagenet_parquet, files=parquet), parquet) for at in ("imagenet/data", "imagenet")]
    return Entry(name, images, (*flat, *folders, *rows, tar), (f"imagenet-{part}",))


def _imagenet_v2(name: str, part: Literal["train", "test"]) -> Entry:
    """One half of ImageNet-V2."""
    return Entry(name, 5_000, (Layout("imagenetv2", partial(imagenet_v2, part=part)),), ("imagenet-v2",))


_MNIST = Entry(
    "MNIST",
    10_000,
    (
        *(Layout(at, mnist, "t10k-images*") for at in ("mnist", "mnist/raw", "MNIST/raw")),
        *(Layout(at, ImageFolder) for at in ("mnist/test", "mnist")),
    ),
    ("mnist",),
)
_SVHN = Entry("SVHN", 26_032, (Layout("svhn", svhn, "test_32x32.mat"), Layout("svhn/test", ImageFolder)), ("svhn",))
_SMALL_NEAR = _folders("TinyImageNet", 10_000, "tiny-imagenet-200/val/images", "tinyimagenet/test", "tinyimagenet")
_SMALL_FAR = (
    _SVHN,
    _folders("Texture", 5_640, "dtd/images", "texture32/test", "texture"),
    # the paper gives no number; 10,000 is what is drawn to test such networks (github.com/deeplearning-wisc/SNN)
    _folders("Places365", 10_000, "places365", "places32/test"),
    _folders("LSUN-Crop", 10_000, "LSUN/test", "LSUN"),
    _folders("LSUN-Resize", 10_000, "LSUN_resize/LSUN_resize", "LSUN_resize"),
    _folders("iSUN", 8_925, "iSUN/iSUN_patches", "iSUN"),
)
_LARGE_NEAR = (
    _folders("Species", None, "species"),
    _folders("iNaturalist", 10_000, "iNaturalist/images", "iNaturalist"),
    _folders("SUN", 10_000, "SUN/images", "SUN"),
    _folders("Places", 10_000, "Places/images", "Places", "places"),
    _folders("OpenImage-O", 17_632, "openimage_o"),
    _folders("ImageNet-O", 2_000, "imagenet-o"),
)
_LARGE_FAR = (_folders("Texture", 5_640, "dtd/images", "texture"), _MNIST)


_CIFAR10, _CIFAR100 = _cifar(10, train=False), _cifar(100, train=False)
_V2 = _imagenet_v2("ImageNet-V2, fitted half", "train"), _imagenet_v2("ImageNet-V2, tested half", "test")
_ILSVRC = _imagenet("ImageNet train", 1_281_167, "train"), _imagenet("ImageNet", 50_000, "val")


def _collection(inside: tuple[Entry, Entry], near: Iterable[Entry], far: Iterable[Entry]) -> Collection:
    """The training set and the test set, near and far OOD sets."""
    train, test = inside
    return Collection(
        [("train", train), ("test", test), *(("near", entry) for entry in near), *(("far", entry) for entry in far)]
    )


CATALOG: dict[str, Collection] = {
    "imagenet": _collection(_ILSVRC, _LARGE_NEAR, _LARGE_FAR),
    "imagenet-v2": _collection(_V2, _LARGE_NEAR, _LARGE_FAR),
    "cifar10": _collection((_cifar(10, train=True), _CIFAR10), (_CIFAR100, _SMALL_NEAR), _SMALL_FAR),
    "cifar100": _collection((_cifar(100, train=True), _CIFAR100), (_CIFAR10, _SMALL_NEAR), _SMALL_FAR),
    **openood_collections(),
}


FORMS = "digits:NAME, folder:PATH, list:PATH, array:PATH.npz, catalog:BENCHMARK/SET"


def open_source(source: str, base: Path, data: Path | None = None, *, any_list: bool = False) -> ImageSet:
    """The data set that a source names; paths are relative to `base`, catalogued sets lie below `data`.

    A list that is not the published one is refused, unless `any_list` will do.
    """
    kind, colon, rest = source.partition(":")
    if not colon or not rest:
        raise InputError(f"a data source has one of the forms {FORMS}; got {source!r}")
    path = base / Path(rest).expanduser()
    if kind == "digits":
        return _digits(rest)
    if kind == "catalog":
        return _catalogued(rest, data, any_list)
    if kind not in ("folder", "list", "array"):
        raise InputError(f"{kind!r} is no kind of data source; the forms are {FORMS}")
    if not path.exists():
        raise Missing(f"there is no {path}")
    if kind == "array":
        return _array(path)
    return ImageFolder(path) if kind == "folder" else ImageList(path)


@cache
def _all_digits() -> dict[str, ArraySet]:
    return digits_sets()


def _digits(name: str) -> ArraySet:
    if name not in _all_digits():
        raise InputError(f"digits has no set {name!r}; there are {', '.join(_all_digits())}")
    return _all_digits()[name]


def _catalogued(rest: str, data: Path | None, any_list: bool) -> ImageSet:
    benchmark, _, name = rest.partition("/")
    if benchmark not in CATALOG:
        raise InputError(f"the catalog has no benchmark {benchmark!r}; there are {', '.join(CATALOG)}")
    rows = CATALOG[benchmark].named()
    if name not in rows:
        raise InputError(f"{benchmark} has no set {name!r}; there are {', '.join(rows)}")
    if data is None:
        raise Missing(f"{rows[name].name}: name the folder of the data with --data DIR or OODSHAPE_DATA")
    images = rows[name].open(data)
    other = "" if any_list else rows[name].differs(data, len(images))
    if other:
        raise InputError(f"{other}; get the published lists, or take these as they are with --other-lists")
    return images


def _array(path: Path) -> ArraySet:
    """An .npz file with `images` (uint8) and, where there are any, `labels`."""
    way_out = "it must be an .npz file with `images` and perhaps `labels`"
    with reading(path, way_out):
        found = npz_within(path)
        if found.keys() - {"images", "labels"} or "images" not in found:
            raise InputError(f"{path} holds {', '.join(found) or 'nothing'}; {way_out}")
        return ArraySet(path.stem, **found)
