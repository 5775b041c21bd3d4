"""The sets of OpenOOD v1.5 in its own data folder: lists of images, and the folders of the images.

`benchmark_imglist/<ID set>/<list>.txt` holds lines `path label`, the paths below `images_classic` or
`images_largescale`; a label of -1 means OOD. Counts and checksums were read from published copies of the lists
(OpenOOD v1.5, github.com/Jingkang50/OpenOOD).
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from oodshape.images.datasets.entries import Collection, Entry, Layout
from oodshape.images.sources.folders import ImageFolder, ImageList

LISTS = "benchmark_imglist"
CLASSIC, LARGE = "images_classic", "images_largescale"
_MD5 = {
    "imagenet/test_imagenet": "9e71d083f6ccd93f3eae14b7d9d4f81d",
    "imagenet/val_imagenet": "8b40dd8de413c93f33f3acf530e7cf93",
    "imagenet/test_ninco": "b214b386fb800469688560e7d47aaf20",
    "imagenet/test_ssb_hard": "3702e7b9451719712059f12253551f7e",
    "imagenet/test_inaturalist": "a8c042364439774fbbcffedaf34549ff",
    "imagenet/test_textures": "f3772c9082ba8d374d821b61084c357b",
    "imagenet/test_openimage_o": "cf6d23d7233146bb18fc10e56be3e199",
    "imagenet200/test_imagenet200": "4f87eba9fcd533acb334b928ce233909",
}


def listed(images: Path, /, *, name: str, path: str) -> ImageList:
    """The images of a list, given the folder that its paths start from; OpenOOD ignores their EXIF orientation."""
    return ImageList(images.parent / path, images, name=name, upright=False)


def openood_collections() -> dict[str, Collection]:
    """The four benchmarks by name."""
    return {
        "openood-cifar10": _cifar("cifar10", "cifar100", near=9_000, tin=(1_000, 7_793), places=35_195),
        "openood-cifar100": _cifar("cifar100", "cifar10", near=10_000, tin=(972, 6_526), places=33_773),
        "openood-imagenet200": _imagenet("imagenet200", None, 1_000, 9_000, shifted=(2_000, 2_000, 30_000)),
        "openood-imagenet": _imagenet("imagenet", 1_281_167, 5_000, 45_000, shifted=(10_000, 10_000, 30_000)),
    }


def _entry(of: str, file: str, name: str, count: int | None, home: str, below: str, *more: Layout) -> Entry:
    """The set that `benchmark_imglist/<of>/<file>.txt` lists, its images in the folder <below>/<home>."""
    path = f"{LISTS}/{of}/{file}.txt"
    layout = Layout(below, partial(listed, path=path), home, path)
    sources = ("openood-lists", f"openood-{home}")
    return Entry(name, count, (layout, *more), sources, path, _MD5.get(f"{of}/{file}", ""))


def _cifar(of: str, other: str, *, near: int, tin: tuple[int, int], places: int) -> Collection:
    def entry(file: str, name: str, count: int, home: str) -> Entry:
        return _entry(of, file, name, count, home, CLASSIC)

    # a part of CIFAR-10's own test images, seen through the corruptions of CIFAR-10-C
    shifted = (entry("test_cifar10c", "cifar10c", 10_000, "cifar10c"),) if of == "cifar10" else ()
    return Collection(
        train=entry(f"train_{of}", "train", 50_000, of),
        test=entry(f"test_{of}", "test", 9_000, of),
        near=(entry(f"test_{other}", other, near, other), entry("test_tin", "tin", tin[1], "tin")),
        far=(
            entry("test_mnist", "mnist", 70_000, "mnist"),
            entry("test_svhn", "svhn", 26_032, "svhn"),
            entry("test_texture", "texture", 5_640, "texture"),
            entry("test_places365", "places365", places, "places365"),
        ),
        val=entry(f"val_{of}", "val", 1_000, of),
        ood_val=entry("val_tin", "val_tin", tin[0], "tin"),
        shifted=shifted,
    )


def _imagenet(of: str, train: int | None, val: int, test: int, *, shifted: tuple[int, int, int]) -> Collection:
    def entry(file: str, name: str, count: int | None, home: str, *more: Layout) -> Entry:
        return _entry(of, file, name, count, home, CLASSIC if home == "texture" else LARGE, *more)

    # all training images of all classes: their folders say the same as the list
    folders = (Layout(f"{LARGE}/imagenet_1k/train", ImageFolder),) if of == "imagenet" else ()
    kinds = zip(("v2", "c", "r"), shifted, strict=True)
    # ImageNet-ES came to OpenOOD later, and is in no figure of its leaderboard
    later = (entry("test_imagenet_es", "imagenet_es", None, "imagenet_es"),) if of == "imagenet" else ()
    return Collection(
        train=entry(f"train_{of}", "train", train, "imagenet_1k", *folders),
        test=entry(f"test_{of}", "test", test, "imagenet_1k"),
        near=(
            entry("test_ssb_hard", "ssb_hard", 49_000, "ssb_hard"),
            entry("test_ninco", "ninco", 5_879, "ninco"),
        ),
        far=(
            entry("test_inaturalist", "inaturalist", 10_000, "inaturalist"),
            entry("test_textures", "textures", 5_160, "texture"),
            entry("test_openimage_o", "openimage_o", 15_869, "openimage_o"),
        ),
        val=entry(f"val_{of}", "val", val, "imagenet_1k"),
        ood_val=entry("val_openimage_o", "val_openimage_o", 1_763, "openimage_o"),
        shifted=(
            *(entry(f"test_{of}_{kind}", f"imagenet_{kind}", count, f"imagenet_{kind}") for kind, count in kinds),
            *later,
        ),
    )
