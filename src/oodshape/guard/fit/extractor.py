"""Extractor: turns images into features, and reports those that cannot be read."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.options import RunOptions
from oodshape.features.extraction import Extraction
from oodshape.features.features import Features
from oodshape.images.decode.prefetch import sample_sizes
from oodshape.images.decode.preprocessing import Preprocessing, check_shape
from oodshape.images.duplicates import find_repeated
from oodshape.images.sources.image_set import ImageSet, Subset
from oodshape.methods.detector import warn_of_repeated
from oodshape.networks.classifier import Classifier

SHOWN = 3  # unreadable files named in a warning


class ExtractedImages(NamedTuple):
    """The readable images, their features, and the errors of the others."""

    images: ImageSet
    features: Features
    total: int  # with those that could not be read
    lost: int = 0
    reasons: tuple[str, ...] = ()  # of the first of them


@dataclass(frozen=True)
class Extractor:
    """A network with its preprocessing and the options of the extraction."""

    classifier: Classifier
    preprocessing: Preprocessing
    upright: bool
    run: RunOptions = RunOptions()
    cache: Path | None = None

    def read(self, images: ImageSet) -> ExtractedImages:
        """What can be read of images."""
        extraction = Extraction(self.classifier, images, self.preprocessing, run=self.run, skip=True)
        extraction.check_repeatable()
        features, read = Features.extracted(extraction, self.cache)
        if read.all():
            return ExtractedImages(images, features, len(read))
        lost = np.flatnonzero(~read)
        reasons = tuple(_reason(images, int(row)) for row in lost[:SHOWN])
        return ExtractedImages(Subset(images, np.flatnonzero(read).tolist()), features, len(read), len(lost), reasons)

    def calibration(self, images: ImageSet, shape: tuple[int, ...] | None) -> Features:
        """The features of the readable images, each counted once; warnings report repeated and unreadable images.

        A network that was fitted on inputs of one `shape` gets no others.
        """
        for size in sample_sizes(images, self.preprocessing):
            check_shape((self.preprocessing.channels, *size), shape)
        again = find_repeated(images)
        warn_of_repeated(len(again), len(images))
        seen = self.read(Subset(images, np.delete(np.arange(len(images)), again).tolist()) if again else images)
        warn_of_unreadable(images.name, seen.total, seen.lost, seen.reasons)
        return seen.features


def warn_of_unreadable(name: str, total: int, lost: int, reasons: tuple[str, ...]) -> None:
    """A warning where images could not be read."""
    if lost:
        shown = [*reasons[:SHOWN], *([f"and {lost - SHOWN} more"] if lost > SHOWN else [])]
        warnings.warn(
            f"{lost} of {total} images of {name} cannot be read and are left out: {'; '.join(shown)}", stacklevel=5
        )


def _reason(images: ImageSet, row: int) -> str:
    try:
        images[row]
    except InputError as error:
        return str(error).partition(";")[0]
    return f"image {row} (now readable)"
