"""OpenOOD's data folder in small: its lists and folders under their own names, a few made-up images in each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from PIL import Image

from oodshape.images.datasets.catalog import CATALOG

# how the paths of a list begin and end, by the folder of its images
PATHS = {
    "cifar10": "cifar10/{part}/airplane/{n:04d}.png",
    "cifar100": "cifar100/{part}/apple/{n:04d}.png",
    "cifar10c": "cifar10c/{n:05d}_{label}.png",
    "tin": "tin/val/images/{part}_{n}.JPEG",
    "mnist": "mnist/test/8_{n}.jpg",
    "svhn": "svhn/test/{n:06d}_2.jpg",
    "texture": "texture/banded/banded_{n:04d}.jpg",
    "places365": "places365/airfield/Places365_val_{n:08d}.jpg",
    "imagenet_1k": "imagenet_1k/{part}/ILSVRC2012_{part}_{n:08d}.JPEG",
    "ssb_hard": "ssb_hard/n11622368/n11622368_{n}.JPEG",
    "ninco": "ninco/amphiuma/{n}.jpeg",
    "inaturalist": "inaturalist/images/{n:032x}.jpg",
    "openimage_o": "openimage_o/images/{part}{n:016x}.jpg",
    "imagenet_v2": "imagenet_v2/{label}/{n:040x}.jpeg",
    "imagenet_c": "imagenet_c/fog/3/ILSVRC2012_val_{n:08d}.JPEG",
    "imagenet_r": "imagenet_r/n01443537/art_{n}.jpg",
}


def write_openood(root: Path, benchmark: str, count: int = 6, classes: int = 3, side: int = 32) -> None:
    """Every list of a benchmark with `count` lines, and the images that they name; ID images are brighter."""
    rng = np.random.default_rng(0)
    for role, entry in CATALOG[benchmark]:
        below, home = entry.layouts[0].folder, entry.layouts[0].marker
        inside = role in ("train", "val", "test", "shifted")
        part = role if role in ("train", "val") else "test"
        lines = []
        for n in range(count):
            label = n % classes if inside else -1
            path = PATHS[home].format(part=part, n=n, label=max(label, 0))
            lines.append(f"{path} {label}")
            file = root / below / path
            file.parent.mkdir(parents=True, exist_ok=True)
            # mode L, as MNIST has it; wider than high, as photographs are; ImageNet-C has its final size already
            size = (224, 224) if home == "imagenet_c" else (side, side + side // 4) if home != "mnist" else (28, 28)
            shape = size if home == "mnist" else (*size, 3)
            low = 40 * (label + 1) if inside else 0
            Image.fromarray(rng.integers(low, low + 90, shape, dtype=np.uint8)).save(file)
        listed = root / entry.listed
        listed.parent.mkdir(parents=True, exist_ok=True)
        listed.write_text("\n".join(lines) + "\n")
