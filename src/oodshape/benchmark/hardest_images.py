"""The images on which methods are most confidently wrong, as thumbnails small enough to keep with results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.values import check_fields
from oodshape.features.features import Features
from oodshape.images.decode.thumbnail import thumbnail
from oodshape.images.sources.image_set import ImageSet
from oodshape.methods.records import FEATURED, RECORDS

SHOWN = (FEATURED, *(record.id for record in RECORDS.values() if record.block == "choice"))  # beside the best method
INSIDE = ""  # the name of the ID images among the OOD sets


@dataclass(frozen=True, kw_only=True)
class Pick:
    """The most wrong images of a set for one method on one model, the worst first; `ood` is "" for ID images.

    `shares` says how wrong: for an OOD image the share of ID images that score lower, for an ID image the share of
    OOD images that score higher.
    """

    model: str
    method: str
    ood: str
    images: tuple[int, ...]  # places in Samples.images
    scores: tuple[float, ...]
    shares: tuple[float, ...]
    predicted: tuple[int, ...]  # the class that the network gives the image
    labels: tuple[int, ...]  # its true class, -1 where it has none

    def __post_init__(self) -> None:
        """Refuse lists of different lengths."""
        check_fields(self)
        if len({len(each) for each in (self.images, self.scores, self.shares, self.predicted, self.labels)}) != 1:
            raise InputError(f"the picks of {self.method} on {self.model} differ in length")


@dataclass(frozen=True)
class Samples:
    """Thumbnails as data URIs, each once, and who was wrong on which."""

    images: tuple[str, ...] = ()
    picks: tuple[Pick, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a pick of an image that is not there."""
        check_fields(self)
        for pick in self.picks:
            if any(not 0 <= image < len(self.images) for image in pick.images):
                raise InputError(f"a pick of {pick.method} names an image beyond the {len(self.images)} kept")


@dataclass(frozen=True)
class _Wrong:
    """A pick before its images are drawn."""

    model: str
    method: str
    ood: str
    rows: tuple[int, ...]
    numbers: dict[str, tuple[Any, ...]]


class Gallery:
    """Collects the `count` most wrong images of every method, and draws those of a few methods at the end."""

    def __init__(self, sets: Mapping[str, ImageSet], count: int) -> None:
        """A gallery over the sets of a run; `test` holds the ID images."""
        self._sets, self._count = sets, count
        self._wrong: list[_Wrong] = []

    def add(self, model: str, method: str, scores: Mapping[str, Any], features: Mapping[str, Features]) -> None:
        """Note the worst images of a method from its scores by set: `test` and the OOD sets."""
        arrays = {name: np.asarray(values, np.float64) for name, values in scores.items()}
        inside = np.sort(arrays["test"])
        every = np.sort(np.concatenate([values for name, values in arrays.items() if name != "test"]))
        for name, values in arrays.items():
            if name not in self._sets:
                continue  # tensors and features: there is nothing to show
            ours = name == "test"
            rows = np.argsort(values if ours else -values, kind="stable")[: self._count]
            worst = values[rows]
            if ours:
                shares = 1 - np.searchsorted(every, worst, side="right") / len(every)
            else:
                shares = np.searchsorted(inside, worst, side="left") / len(inside)
            labels = features[name].labels
            numbers: dict[str, tuple[Any, ...]] = {
                "scores": tuple(float(f"{value:.6g}") for value in np.nan_to_num(worst)),
                "shares": tuple(shares.round(4).tolist()),
                "predicted": tuple(features[name].predictions[rows.tolist()].tolist()),
                "labels": (-1,) * len(rows) if labels is None else tuple(labels[rows.tolist()].tolist()),
            }
            self._wrong.append(_Wrong(model, method, INSIDE if ours else name, tuple(rows.tolist()), numbers))

    def samples(self, best: Mapping[str, str]) -> Samples:
        """The picks of the best method of each model and of the featured ones, with thumbnails."""
        places: dict[tuple[str, int], int] = {}
        images: list[str] = []
        picks = []
        for wrong in self._wrong:
            if wrong.method not in (best[wrong.model], *SHOWN) or not wrong.rows:
                continue
            name = wrong.ood or "test"
            for row_number in wrong.rows:
                if (name, row_number) not in places:
                    places[name, row_number] = len(images)
                    images.append(thumbnail(self._sets[name][row_number]))
            at = tuple(places[name, row_number] for row_number in wrong.rows)
            picks.append(Pick(model=wrong.model, method=wrong.method, ood=wrong.ood, images=at, **wrong.numbers))
        return Samples(tuple(images), tuple(picks))
