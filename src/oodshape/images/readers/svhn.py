"""SVHN's cropped digits (format 2): train_32x32.mat and test_32x32.mat."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.reading import reading
from oodshape.images.image_set import ArraySet
from oodshape.images.readers.matlab import Damaged, arrays

HOME = "http://ufldl.stanford.edu/housenumbers/"


def svhn(root: str | Path, *, train: bool, name: str = "svhn") -> ArraySet:
    """SVHN: [N, 32, 32, 3] images with the digits 0..9 as labels (the file's label 10 means 0)."""
    path = Path(root) / ("train_32x32.mat" if train else "test_32x32.mat")
    if not path.is_file():
        raise InputError(f"no SVHN at {path}: download {path.name} (format 2, cropped digits) from {HOME}")
    with reading(path, f"download it again from {HOME}"):
        return _svhn(path, name)


def _svhn(path: Path, name: str) -> ArraySet:
    try:
        content = arrays(path, ["X", "y"])
    except Damaged as error:
        raise InputError(
            f"{path} is damaged or no SVHN file: X and y cannot be read ({error}); download it again from {HOME}"
        ) from None
    images, labels = content["X"], content["y"].ravel()
    if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
        raise InputError(f"{path}: X must be uint8 [32, 32, 3, N], got {images.dtype}{list(images.shape)}")
    if len(labels) != images.shape[3] or len(labels) == 0:
        raise InputError(f"{path}: X holds {images.shape[3]} images, y {len(labels)} labels")
    if not np.isin(labels, np.arange(11)).all():
        raise InputError(f"{path}: y must hold the labels 1..10, got {labels.min()}..{labels.max()}")
    return ArraySet(name, np.ascontiguousarray(images.transpose(3, 0, 1, 2)), labels.astype(np.int64) % 10)
