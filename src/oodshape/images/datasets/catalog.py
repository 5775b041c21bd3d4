"""THE TABLE of the benchmarks' data (what each needs, where to get and put it, what is there), and sets by a word.

The words: `digits:train`, `folder:PATH`, `list:PATH`, `array:PATH.npz`, `catalog:imagenet/Texture`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Literal

from oodshape.core.errors import InputError
from oodshape.core.reading import reading
from oodshape.images.datasets.cifar_mnist_svhn import cifar, mnist, svhn
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.datasets.entries import Collection, Entry, Layout, Role
from oodshape.images.datasets.imagenet import LABELS, imagenet_val
from oodshape.images.datasets.openood import openood_collections
from oodshape.images.decode.limits import npz_within
from oodshape.images.sources.folders import ImageFolder, ImageList
from oodshape.images.sources.image_set import ArraySet, ImageSet


@dataclass(frozen=True)
class Status:
    """One row of what is there: a set is found, missing, or for a reason damaged or not the published one."""

    benchmark: str
    role: Role
    entry: Entry
    state: Literal["found", "missing", "damaged", "differs"]
    images: int | None = None
    reason: str = ""


def chosen_benchmarks(benchmark: str | None) -> list[str]:
    """The benchmark of this name, or all that there are."""
    if benchmark is not None and benchmark not in CATALOG:
        raise InputError(f"no benchmark {benchmark!r}; there are {', '.join(CATALOG)}")
    return [benchmark] if benchmark else list(CATALOG)


def status(root: str | Path, benchmark: str | None = None) -> list[Status]:
    """What lies below a data root: one row per set of one benchmark, or of all."""
    seen: dict[Entry, Status] = {}  # benchmarks share sets: each is read once
    rows = []
    for name in chosen_benchmarks(benchmark):
        for role, entry in CATALOG[name]:
            if entry not in seen:
                seen[entry] = _status(name, role, entry, root)
            rows.append(replace(seen[entry], benchmark=name, role=role))
    return rows


def _status(benchmark: str, role: Role, entry: Entry, root: str | Path) -> Status:
    """The row of one set."""
    try:
        if entry.find(root) is None:
            return Status(benchmark, role, entry, "missing")
        images = len(entry.open(root))
        other = entry.differs(root, images)
        return Status(benchmark, role, entry, "differs" if other else "found", images, other)
    except (InputError, OSError) as error:
        return Status(benchmark, role, entry, "damaged", reason=str(error))


def _folders(name: str, images: int | None, get: str, *folders: str) -> Entry:
    """A set that is a folder of images; the first folder is where to put it."""
    return Entry(name, images, get, folders[0], tuple(Layout(folder, ImageFolder) for folder in folders))


def _cifar(kind: Literal[10, 100], *, train: bool) -> Entry:
    """CIFAR in its archives' layouts, or as class folders."""
    home, part = f"cifar{kind}", "train" if train else "test"
    batch = part if kind == 100 else "data_batch_" if train else "test_batch"
    read, marker = partial(cifar, kind=kind, train=train), f"cifar-{kind}-*/{batch}*"
    return Entry(
        f"CIFAR-{kind} train" if train else f"CIFAR-{kind}",
        50_000 if train else 10_000,
        f"cifar-{kind}-binary.tar.gz from https://www.cs.toronto.edu/~kriz/cifar.html, unpacked",
        f"{home}/{'cifar-10-batches-bin' if kind == 10 else 'cifar-100-binary'}",
        (Layout(home, read, marker), Layout(".", read, marker), Layout(f"{home}/{part}", ImageFolder)),
    )


_ILSVRC = "images of ILSVRC 2012 from https://image-net.org/challenges/LSVRC/2012, in class folders"
_MOS = "(the subset of MOS) from https://github.com/deeplearning-wisc/large_scale_ood, unpacked"
_ODIN = "from https://github.com/facebookresearch/odin, unpacked"
_DTD = "dtd-r1.0.1.tar.gz (all 47 classes) from https://www.robots.ox.ac.uk/~vgg/data/dtd, unpacked"
_TINY = "the validation images of http://cs231n.stanford.edu/tiny-imagenet-200.zip, unpacked"
# the paper gives no number; 10,000 is what is drawn to test such networks (github.com/deeplearning-wisc/SNN)
_PLACES365 = "10,000 of the test images (256 px) of Places365 from http://places2.csail.mit.edu"
_VIM = "the images in the list openimage_o.txt of https://github.com/haoqiwang/vim"
_ADVERSARIAL = "imagenet-o.tar from https://github.com/hendrycks/natural-adv-examples, unpacked"

_IMAGENET = Entry(
    "ImageNet",
    50_000,
    f"the validation {_ILSVRC}, or flat with {' or '.join(LABELS)} beside the folder",
    "imagenet/val",
    (Layout("imagenet/val", imagenet_val, "ILSVRC2012_val_*"), Layout("imagenet/val", ImageFolder)),
)
_MNIST = Entry(
    "MNIST",
    10_000,
    "t10k-images-idx3-ubyte.gz and t10k-labels-idx1-ubyte.gz from http://yann.lecun.com/exdb/mnist",
    "mnist",
    (
        *(Layout(at, mnist, "t10k-images*") for at in ("mnist", "mnist/raw", "MNIST/raw")),
        *(Layout(at, ImageFolder) for at in ("mnist/test", "mnist")),
    ),
)
_SVHN = Entry(
    "SVHN",
    26_032,
    "test_32x32.mat (format 2) from http://ufldl.stanford.edu/housenumbers",
    "svhn",
    (Layout("svhn", svhn, "test_32x32.mat"), Layout("svhn/test", ImageFolder)),
)
_SMALL_NEAR = _folders(
    "TinyImageNet", 10_000, _TINY, "tiny-imagenet-200/val/images", "tinyimagenet/test", "tinyimagenet"
)
_SMALL_FAR = (
    _SVHN,
    _folders("Texture", 5_640, _DTD, "dtd/images", "texture32/test", "texture"),
    _folders("Places365", 10_000, _PLACES365, "places365", "places32/test"),
    _folders("LSUN-Crop", 10_000, f"LSUN.tar.gz (crop) {_ODIN}", "LSUN/test", "LSUN"),
    _folders("LSUN-Resize", 10_000, f"LSUN_resize.tar.gz {_ODIN}", "LSUN_resize/LSUN_resize", "LSUN_resize"),
    _folders("iSUN", 8_925, f"iSUN.tar.gz {_ODIN}", "iSUN/iSUN_patches", "iSUN"),
)
_CIFAR10, _CIFAR100 = _cifar(10, train=False), _cifar(100, train=False)

CATALOG: dict[str, Collection] = {
    "imagenet": Collection(
        train=_folders("ImageNet train", 1_281_167, f"the training {_ILSVRC}", "imagenet/train"),
        test=_IMAGENET,
        near=(
            _folders("Species", None, "Species from https://github.com/hendrycks/anomaly-seg", "species"),
            _folders("iNaturalist", 10_000, f"iNaturalist.tar.gz {_MOS}", "iNaturalist/images", "iNaturalist"),
            _folders("SUN", 10_000, f"SUN.tar.gz {_MOS}", "SUN/images", "SUN"),
            _folders("Places", 10_000, f"Places.tar.gz {_MOS}", "Places/images", "Places", "places"),
            _folders("OpenImage-O", 17_632, _VIM, "openimage_o"),
            _folders("ImageNet-O", 2_000, _ADVERSARIAL, "imagenet-o"),
        ),
        far=(_folders("Texture", 5_640, _DTD, "dtd/images", "texture"), _MNIST),
    ),
    "cifar10": Collection(_cifar(10, train=True), _CIFAR10, (_CIFAR100, _SMALL_NEAR), _SMALL_FAR),
    "cifar100": Collection(_cifar(100, train=True), _CIFAR100, (_CIFAR10, _SMALL_NEAR), _SMALL_FAR),
    **openood_collections(),
}


FORMS = "digits:NAME, folder:PATH, list:PATH, array:PATH.npz, catalog:BENCHMARK/SET"


class Missing(InputError):
    """A data set that is not on this machine; the message says where to get it and where to put it."""


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
        raise Missing(f"{rows[name].name}: say where the data lie with --data DIR or OODSHAPE_DATA")
    if rows[name].find(data) is None:
        raise Missing(
            f"{rows[name].name}: not below {data}; get {rows[name].get}, and put it at {data / rows[name].put}"
        )
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
