"""Samples: the most wrong images of a run, as they are kept with results."""

from __future__ import annotations

from dataclasses import dataclass

from oodshape.core.errors import InputError
from oodshape.core.values import check_fields


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
