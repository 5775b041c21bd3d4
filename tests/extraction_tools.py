"""Images, a counted network and caches, for the tests of extraction."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn

from oodshape import Features
from oodshape.core.options import Precision
from oodshape.features import extraction as extraction
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.image_files import ImageFolder
from oodshape.images.sources.image_set import ArraySet
from oodshape.networks.classifier import Classifier
from oodshape.networks.zoo.digits_nets import load_small_net

CHUNK = 16


def digits(n: int = 50, seed: int = 0) -> ArraySet:
    rng = np.random.default_rng(seed)
    return ArraySet("digits", rng.integers(0, 256, (n, 16, 16)).astype(np.uint8), rng.integers(0, 8, n))


def write(folder: Path, images: ArraySet) -> ImageFolder:
    """The same images as files, in class folders."""
    for row, (image, label) in enumerate(zip(images.images, images.labels, strict=True)):
        path = folder / f"{label}" / f"{row:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return ImageFolder(folder)


class Counted:
    """A classifier that has checked its network, and the number of images that it has seen since."""

    def __init__(
        self, net: nn.Module | None = None, head: str | None = "head", precision: Precision = "float32"
    ) -> None:
        self.net = load_small_net("convnet") if net is None else net
        self.images = 0
        self.net.register_forward_pre_hook(self._count)
        self.classifier = Classifier(self.net, head, precision=precision)
        if head is not None:
            self.classifier(torch.zeros(2, 1, 16, 16))
            self.images = 0

    def _count(self, net: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.images += len(args[0])


def extract(counted: Counted, images: Any, cache: Path | None = None, **settings: Any) -> Features:
    settings = {"batch_size": 8, "preprocessing": DIGITS, **settings}
    return Features.extract(counted.classifier, images, cache=cache, **settings)


def values(features: Features) -> np.ndarray:
    return np.concatenate([chunk.numpy() for _, chunk in features.chunks()])


def same(left: Features, right: Features) -> None:
    """Bit for bit the same."""
    assert values(left).dtype == values(right).dtype
    np.testing.assert_array_equal(values(left), values(right))
    assert torch.equal(left.predictions, right.predictions)
    assert torch.equal(left.labels, right.labels)
    assert left.head.fingerprint == right.head.fingerprint


def entry(cache: Path) -> Path:
    """The only folder of a cache."""
    (folder,) = (path for path in cache.iterdir() if path.is_dir())
    return folder
