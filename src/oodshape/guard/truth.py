"""The right classes of images, where what a user gave says them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.guard.fitted import Fitted
from oodshape.images.image_set import ImageSource
from oodshape.images.listing import Given, Listing, classes_of

Labels = NDArray[np.int64]


def labels_of(
    guard: Fitted,
    images: Given,
    listing: ImageSource | None,
    pairs: Sequence[tuple[str, int]],
    places: Sequence[int],
) -> Labels | None:
    """[N]: the class of each image in the guard's order, -1 where it is not known; None where none is.

    Class folders are matched by their names, or by their order where the guard knows no names. Lists bring numbers,
    and so do data sets; `places` are the images' numbers in what was given.
    """
    found = _given_labels(guard, images, listing, pairs, places)
    if found is None:
        return None
    known = (found >= 0) & (found < (guard.detector.classes or 0))
    return np.where(known, found, -1) if known.any() else None


def _given_labels(guard: Fitted, images: Given, listing: Any, pairs: Any, places: Any) -> Labels | None:
    if isinstance(listing, Listing) and isinstance(listing.given, str):
        if os.path.isdir(listing.given):
            return _by_folder(guard, listing.given, [path for path, _ in pairs])
        return np.array([label for _, label in pairs], np.int64) if os.path.isfile(listing.given) else None
    if not all(hasattr(images, name) for name in ("labels", "fingerprint")):  # no data set that knows its labels
        return None
    return _named(guard, np.asarray(images.labels, np.int64)[list(places)], classes_of(images))


def _by_folder(guard: Fitted, root: str, paths: Sequence[str]) -> Labels | None:
    """The folder directly below the root is the class, unless images lie in the root itself."""
    parts = [Path(os.path.relpath(path, root)).parts for path in paths]
    if any(len(part) < 2 for part in parts):
        return None
    names = sorted({part[0] for part in parts} | {each.name for each in os.scandir(root) if each.is_dir()})
    order = {name: place for place, name in enumerate(name for name in names if not name.startswith("."))}
    return _named(guard, np.array([order[part[0]] for part in parts], np.int64), tuple(order))


def _named(guard: Fitted, labels: Labels, classes: tuple[str, ...]) -> Labels | None:
    """Labels in the guard's order: by the names of the classes where both sides have them."""
    names = guard.about.names
    if not classes:
        return labels
    if not names:
        return labels if len(classes) == guard.detector.classes else None
    place = {name: number for number, name in enumerate(names)}
    order = np.array([place.get(name, -1) for name in classes], np.int64)
    return np.where(labels >= 0, order[labels], -1)
