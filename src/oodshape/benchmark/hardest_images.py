"""The images on which methods are most confidently wrong, as thumbnails small enough to keep with results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.values import check_fields
from oodshape.features.features import Features
from oodshape.images.decode.thumbnail import make_thumbnail
from oodshape.images.sources.image_set import ImageSet
from oodshape.methods.records import FEATURED, RECORDS
from oodshape.metrics.significance import Scores

SHOWN = (FEATURED, *(record.id for record in RECORDS.values() if record.block == "choice"))  # next to the best method
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
class HardImages:
    """Thumbnails as data URIs, each once, and who was wrong on which."""

    images: tuple[str, ...] = ()
    picks: tuple[Pick, ...] = ()

    def __post_init__(self) -> None:
        """Refuse a pick of an image that is not there."""
        check_fields(self)
        for pick in self.picks:
            if any(not 0 <= image < len(self.images) for image in pick.images):
                raise InputError(f"a pick of {pick.method} names an image beyond the {len(self.images)} kept")


class HardestImageFinder:
    """Finds the `count` most wrong images of a few methods, and draws each of them once."""

    def __init__(self, sets: Mapping[str, ImageSet], count: int) -> None:
        """A gallery over the sets of a run that hold images; `test` has the ID images."""
        self._sets, self._count = sets, count
        self._images: dict[tuple[str, int], int] = {}  # (set, row) -> place among the thumbnails
        self._picks: list[Pick] = []

    def add(self, model: str, methods: Mapping[str, Scores], best: str, features: Mapping[str, Features]) -> None:
        """Keep the worst images of the best method of a network and of the featured ones, from scores of its sets."""
        for method, (id_scores, ood_scores) in methods.items():
            if method not in (best, *SHOWN):
                continue
            inside, every = np.sort(id_scores), np.sort(np.concatenate(list(ood_scores.values())))
            for name, scores in {"test": id_scores[: len(features["test"])], **ood_scores}.items():
                ours = name == "test"
                rows = np.argsort(scores if ours else -scores, kind="stable")[: self._count].tolist()
                if name not in self._sets or not rows:
                    continue
                worst = scores[rows]
                if ours:
                    shares = 1 - np.searchsorted(every, worst, side="right") / len(every)
                else:
                    shares = np.searchsorted(inside, worst, side="left") / len(inside)
                labels = features[name].labels
                pick = Pick(
                    model=model,
                    method=method,
                    ood=INSIDE if ours else name,
                    images=tuple(self._images.setdefault((name, row), len(self._images)) for row in rows),
                    scores=tuple(float(f"{value:.6g}") for value in np.nan_to_num(worst)),
                    shares=tuple(shares.round(4).tolist()),
                    predicted=tuple(features[name].predictions[rows].tolist()),
                    labels=(-1,) * len(rows) if labels is None else tuple(labels[rows].tolist()),
                )
                self._picks.append(pick)

    def samples(self) -> HardImages:
        """The picks, with thumbnails."""
        return HardImages(
            tuple(make_thumbnail(self._sets[name][row]) for name, row in self._images), tuple(self._picks)
        )
