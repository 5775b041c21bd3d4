"""Samples: a few images of the fitting set that a guard keeps, to show what an image was taken for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Sizes, Value, frozen_array
from oodshape.features.kernels import unit
from oodshape.guard.fit.extractor import Extractor
from oodshape.images import identity
from oodshape.images.decode.thumbnail import encoded
from oodshape.images.sources.image_set import ImageSet, Subset, identities_of
from oodshape.images.sources.listing import Given, image_set

MOST = 10_000  # a guard is one small file
SIDE = 64  # pixels of a kept image's longer side, at most


@dataclass(frozen=True, eq=False, repr=False)
class Samples(Value):
    """Small images, the directions of their features, and the classes that the network gives them."""

    directions: Annotated[NDArray[np.float32], Sizes("S M")]  # features of length 1
    classes: Annotated[NDArray[np.int32], Sizes("S"), AtLeast(0)]
    names: tuple[str, ...]  # below the folder that was given, or image 0, image 1 ...
    pixels: Annotated[NDArray[np.uint8], Sizes("B")]  # PNG and WebP files, one after the other
    ends: Annotated[NDArray[np.int64], Sizes("S"), AtLeast(1)]  # where each of them ends

    def __post_init__(self) -> None:
        for name, kind in (("directions", "f4"), ("classes", "i4"), ("pixels", "u1"), ("ends", "i8")):
            object.__setattr__(self, name, frozen_array(getattr(self, name), np.dtype(kind)))
        if len(self.names) != len(self.ends):
            raise InputError(f"{len(self.ends)} kept images have {len(self.names)} names")
        if (np.diff(self.ends) <= 0).any() or self.ends[-1] != len(self.pixels):
            raise InputError("the kept images do not lie one after the other: the file is damaged")

    @classmethod
    def of(cls, extractor: Extractor, given: Given, keep: int) -> Samples:
        """So many of the images that were given to fit on, by a hash of their identity, without unreadable ones."""
        images = image_set(given, upright=extractor.upright)
        rows, files, parts = [], [], []
        for row in identity.smallest(identities_of(images), keep, 0, "samples").tolist():
            try:
                image = images[row]
                outputs = extractor.classifier(extractor.preprocessing.batch([image]))
            except InputError:
                continue
            rows.append(row)
            files.append(encoded(image, SIDE))
            parts.append(outputs)
        if not rows:
            raise InputError(f"none of {keep} images of {images.name} can be read, so none can be kept as samples")
        return cls(
            directions=unit(torch.cat([part.features.float().cpu() for part in parts])).numpy(),
            classes=torch.cat([part.logits.argmax(dim=1).cpu() for part in parts]).numpy(),
            names=tuple(_name(images, row) for row in rows),
            pixels=np.frombuffer(b"".join(files), np.uint8),
            ends=np.cumsum([len(file) for file in files]),
        )

    def file(self, row: int) -> bytes:
        return self.pixels[int(self.ends[row - 1]) if row else 0 : int(self.ends[row])].tobytes()

    def nearest(self, directions: NDArray[np.float32], count: int) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """([n, k] rows, [n, k] cosines) of the images nearest to features of length 1, the nearest first."""
        cosines = directions @ self.directions.T
        rows = np.argsort(-cosines, axis=1, kind="stable")[:, :count]
        return rows, np.take_along_axis(cosines, rows, axis=1)


def check_kept(count: int, unseen: bool) -> None:
    """Refuse a number of images that cannot be kept."""
    if count < 0 or count > MOST:
        raise InputError(f"keep_samples (--keep-samples) must lie in 0..{MOST:,}, got {count}")
    if unseen:
        raise InputError(
            "samples are kept of images (keep_samples): tensors and collected parts are no pictures to show"
        )


def _name(images: ImageSet, row: int) -> str:
    """The file and its folder: a guard does not tell where a training set lies."""
    base: ImageSet = images
    while isinstance(base, Subset):
        row, base = int(base.indices[row]), base.base
    files: Sequence[str] | None = getattr(base, "files", None)
    return f"image {row}" if files is None else "/".join(PurePath(files[row]).parts[-2:])
