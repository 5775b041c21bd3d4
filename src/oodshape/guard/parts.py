"""What a guard is fitted on and what it is calibrated on, from images of any kind: two parts with none in common."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.features.panel import SIZE, tensor_panel
from oodshape.features.sums import Summed
from oodshape.features.tensors import check_unkept, tensors_through
from oodshape.guard.collect import collected
from oodshape.guard.collected import HELD_OUT, Collected
from oodshape.guard.way import Way, warn_of_lost
from oodshape.images import identity
from oodshape.images.copies import copies
from oodshape.images.image_set import ImageSet, limited
from oodshape.images.in_memory import check_prepared
from oodshape.images.listing import Given, classes_of, image_set
from oodshape.methods.detector import Method
from oodshape.metrics.conformal import check_enough, images_needed
from oodshape.networks.classifier import Classifier


@dataclass(frozen=True)
class Parts:
    """Two parts, the panel made from the first, and the names of the classes where images bring them."""

    train: Features | Summed
    held_out: Features
    panel: Callable[[], list[Features]]
    classes: tuple[str, ...] = ()


def of_images(
    way: Way, images: Given, calibrate: Given | None, recipe: Method, alpha: float, limit: int | None
) -> Parts:
    """The parts of images that have to be prepared: those of a part that is the whole."""
    given = image_set(images, upright=way.upright)
    held = None if calibrate is None else image_set(calibrate, upright=way.upright)
    total = len(given)
    total = min(total, limit or total)
    if held is None:
        check_enough_to_split(total, alpha)
    else:
        many = len(held)
        refuse_copies(copies(held, given), many)
        check_enough(many, alpha)
    found = collected(way, given if limit is None else limited(given, limit), recipe, hold_out=held is None)
    warn_of_lost(given.name, total, found.lost, found.reasons)
    return _divided(way, found, held, alpha, limit, classes_of(given))


def of_collected(way: Way, found: Collected, calibrate: Given | None, alpha: float) -> Parts:
    """The parts of images that were collected before."""
    warn_of_lost("the parts", found.made.total, found.lost, found.reasons)
    if calibrate is not None and found.made.held_out:
        raise InputError(
            "these parts keep a share of the training images to set the threshold: leave the calibration images out, "
            "or collect without --hold-out"
        )
    if calibrate is None and not found.made.held_out:
        raise InputError(
            "nothing would set the threshold: give images that the network was not trained on (--calibrate), or "
            "collect with --hold-out"
        )
    held = None if calibrate is None else image_set(calibrate, upright=way.upright)
    if held is not None:
        check_enough(len(held), alpha)
    return _divided(way, found, held, alpha, None, found.made.classes)


def _divided(
    way: Way, found: Collected, held: ImageSet | None, alpha: float, limit: int | None, classes: tuple[str, ...]
) -> Parts:
    """What is fitted on and what sets the threshold: other images, or those held out of the collected ones."""
    train: Features | Summed | None = found.rows if found.summed is None else found.summed
    assert train is not None
    if held is not None:
        held_out = way.extracted(held if limit is None else limited(held, max(limit, images_needed(alpha))))
    elif isinstance(train, Features):
        check_enough_to_split(len(train), alpha)
        last = identity.held_out(train.identities, HELD_OUT, purpose="calibration", fewest=images_needed(alpha))
        train, held_out = train[np.flatnonzero(~last)], train[np.flatnonzero(last)]
    else:
        check_enough(0 if found.held_out is None else len(found.held_out), alpha)
        assert found.held_out is not None
        held_out = found.held_out

    def panel() -> list[Features]:
        made = found.panel_of(train.identities if isinstance(train, Features) else None)
        return [] if made is None else [made]

    return Parts(train, held_out, panel, classes)


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
        check_enough_to_split(len(every), alpha)
        last = identity.held_out(seen.identities, HELD_OUT, purpose="calibration", fewest=images_needed(alpha))
        train, held_out = every[np.flatnonzero(~last)], every[np.flatnonzero(last)]
    else:
        last = np.zeros(len(every), bool)
        train, held_out = every, Features.extract(classifier, calibrate, prepared=True, progress=progress)
        refuse_copies(
            [f"image {row}" for row in np.flatnonzero(np.isin(held_out.identities, seen.identities))], len(held_out)
        )
    fitted = np.flatnonzero(~last[seen.kept_rows])[:SIZE]
    base, which = seen.kept[fitted], seen.identities[seen.kept_rows[fitted]]
    return Parts(train, held_out, partial(tensor_panel, classifier, base, which, progress=progress))


def refuse_copies(names: list[str], of: int) -> None:
    """An error where calibration images, so many in all, are training images too."""
    if names:
        raise InputError(
            f"{len(names)} of the {of} calibration images are training images too, such as {min(names)}; calibrate "
            "on images that the network was not trained on, or leave them out"
        )


def check_enough_to_split(n: int, alpha: float) -> None:
    """Refuse fewer training images than are needed where a share of them sets the threshold."""
    needed = images_needed(alpha)
    fewest = math.ceil(needed / HELD_OUT)
    if n < fewest:
        raise InputError(
            f"without calibration images, {100 * HELD_OUT:g} % of the training images set the threshold: alpha = "
            f"{alpha:g} needs {needed} there, so {fewest} in all, got {n}; "
            "give more images, calibration images, or a larger alpha"
        )
