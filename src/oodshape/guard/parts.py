"""What a guard is fitted on and what it is calibrated on, from images of any kind: two parts with none in common."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.features.extraction import Extraction
from oodshape.features.features import Features
from oodshape.features.panel import SIZE, panel_features, tensor_panel
from oodshape.features.tensors import check_unkept, tensors_through
from oodshape.images import identity
from oodshape.images.copies import copies
from oodshape.images.image_set import ImageSet, Subset, identities_of, limited
from oodshape.images.listing import Given, classes_of, image_set
from oodshape.images.prepared_batches import check_prepared
from oodshape.images.preprocessing import Preprocessing
from oodshape.metrics.conformal import check_enough, images_needed
from oodshape.networks.classifier import Classifier

HELD_OUT = 0.2  # the share of the training images that sets the threshold where there are no others
SHOWN = 3  # unreadable files named in a warning


@dataclass(frozen=True)
class Parts:
    """Two parts as features, the panel made from the first, and the names of the classes where images bring them."""

    train: Features
    held_out: Features
    panel: Callable[[], list[Features]]
    classes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Way:
    """How images become features."""

    classifier: Classifier
    preprocessing: Preprocessing
    upright: bool
    cache: Path | None
    progress: bool | None
    batch_size: int = 64
    workers: int | None = None

    @property
    def how(self) -> dict[str, Any]:
        """What extraction is told beside the network, the images and the preprocessing."""
        return {"batch_size": self.batch_size, "workers": self.workers, "progress": self.progress}

    def extracted(self, images: ImageSet) -> tuple[ImageSet, Features]:
        """The readable images and their features; a warning names those that cannot be read."""
        extraction = Extraction(self.classifier, images, self.preprocessing, skip=True, **self.how)
        features, read = Features.extracted(extraction, self.cache)
        if len(read) == len(images):
            return images, features
        lost = np.setdiff1d(np.arange(len(images)), read)
        reasons = [_reason(images, int(row)) for row in lost[:SHOWN]]
        more = [f"and {len(lost) - SHOWN} more"] if len(lost) > SHOWN else []
        warnings.warn(
            f"{len(lost)} of {len(images)} images of {images.name} cannot be read and are left out: "
            + "; ".join([*reasons, *more]),
            stacklevel=5,
        )
        return Subset(images, read.tolist()), features


def of_images(way: Way, images: Given, calibrate: Given | None, alpha: float, limit: int | None) -> Parts:
    """The parts of images that have to be prepared."""
    given = image_set(images, upright=way.upright)
    held = None if calibrate is None else image_set(calibrate, upright=way.upright)
    fitting, held = _split(given, held, alpha, limit)
    readable, train = way.extracted(fitting)
    _, held_out = way.extracted(held)
    panel = partial(panel_features, way.classifier, readable, way.preprocessing, cache=way.cache, **way.how)
    return Parts(train, held_out, panel, classes_of(given))


def of_tensors(
    classifier: Classifier,
    images: Any,
    calibrate: Any | None,
    alpha: float,
    limit: int | None,
    panel: bool,
    cache: Path | None,
    progress: bool | None,
) -> Parts:
    """The parts of tensors that the network takes as they are."""
    check_unkept(cache)
    if limit is not None:
        raise InputError("limit chooses among images; of prepared tensors give fewer batches")
    for each in (images, calibrate):
        if each is not None:
            check_prepared(each)
    # of those kept for the panel, some may turn out to be held out
    keep = math.ceil(SIZE / (1 - HELD_OUT)) if panel else 0
    seen = tensors_through(classifier, images, keep=keep, progress=progress)
    every = Features.from_tensors(seen, classifier.head)
    if calibrate is None:
        _check_enough_to_split(len(every), alpha)
        last = identity.held_out(seen.identities, HELD_OUT, purpose="calibration", fewest=images_needed(alpha))
        train, held_out = every[np.flatnonzero(~last)], every[np.flatnonzero(last)]
    else:
        last = np.zeros(len(every), bool)
        train, held_out = every, Features.extract(classifier, calibrate, prepared=True, progress=progress)
        _refuse_copies(
            [f"image {row}" for row in np.flatnonzero(np.isin(held_out.identities, seen.identities))], len(held_out)
        )
    fitted = np.flatnonzero(~last[seen.kept_rows])[:SIZE]
    base, which = seen.kept[fitted], seen.identities[seen.kept_rows[fitted]]
    return Parts(train, held_out, partial(tensor_panel, classifier, base, which, progress=progress))


def _split(images: ImageSet, held: ImageSet | None, alpha: float, limit: int | None) -> tuple[ImageSet, ImageSet]:
    """The images to fit on and those to calibrate on."""
    needed = images_needed(alpha)
    if held is not None:
        _refuse_copies(copies(held, images), len(held))
        check_enough(len(held), alpha)
        return limited(images, limit), limited(held, None if limit is None else max(limit, needed))
    _check_enough_to_split(min(len(images), limit or len(images)), alpha)
    chosen = limited(images, limit)
    last = identity.held_out(identities_of(chosen), HELD_OUT, purpose="calibration", fewest=needed)
    return Subset(chosen, np.flatnonzero(~last).tolist()), Subset(chosen, np.flatnonzero(last).tolist())


def _refuse_copies(names: list[str], of: int) -> None:
    if names:
        raise InputError(
            f"{len(names)} of the {of} calibration images are training images too, such as {min(names)}; calibrate "
            "on images that the network was not trained on, or leave them out"
        )


def _check_enough_to_split(n: int, alpha: float) -> None:
    needed = images_needed(alpha)
    fewest = math.ceil(needed / HELD_OUT)
    if n < fewest:
        raise InputError(
            f"without calibration images, {100 * HELD_OUT:g} % of the training images set the threshold: alpha = "
            f"{alpha:g} needs {needed} there, so {fewest} in all, got {n}; "
            "give more images, calibration images, or a larger alpha"
        )


def _reason(images: ImageSet, row: int) -> str:
    try:
        images[row]
    except InputError as error:
        return str(error).partition(";")[0]
    return f"image {row} (now readable)"
