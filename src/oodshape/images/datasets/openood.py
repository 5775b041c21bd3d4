"""The sets of OpenOOD v1.5 in its own data folder: lists of images, and the folders of the images.

`benchmark_imglist/<ID set>/<list>.txt` holds lines `path label`, the paths below `images_classic` or
`images_largescale`; a label of -1 means OOD. Counts and checksums in `openood.csv` were read from published copies of
the lists (OpenOOD v1.5, github.com/Jingkang50/OpenOOD).
"""

from __future__ import annotations

import csv
from functools import partial
from importlib.resources import files
from pathlib import Path
from typing import cast

from oodshape.images.datasets.entries import Collection, Entry, Layout, Role
from oodshape.images.sources.folders import ImageFolder, ImageList


def listed(images: Path, /, *, name: str, path: str) -> ImageList:
    """The images of a list, given the folder that its paths start from; OpenOOD ignores their EXIF orientation."""
    return ImageList(images.parent / path, images, name=name, upright=False)


def openood_collections() -> dict[str, Collection]:
    """The four benchmarks by name."""
    found: dict[str, Collection] = {}
    text = (files("oodshape.images.datasets") / "openood.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        found.setdefault(row["benchmark"], Collection()).append((cast(Role, row["role"]), _entry(row)))
    return found


def _entry(row: dict[str, str]) -> Entry:
    """The set of a row: what its list names in its folder of images."""
    path, (below, home) = f"benchmark_imglist/{row['list']}", row["folder"].split("/")
    layouts = [Layout(below, partial(listed, path=path), home, path)]
    if row["list"] == "imagenet/train_imagenet.txt":  # all images of all classes: their folders say the same
        layouts.append(Layout(f"{row['folder']}/train", ImageFolder))
    images = int(row["images"]) if row["images"] else None
    return Entry(row["name"], images, tuple(layouts), ("openood-lists", f"openood-{home}"), path, row["md5"])
