"""Samples: the most wrong images of a run, as they are kept with results."""

from __future__ import annotations

from dataclasses import dataclass


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


@dataclass(frozen=True)
class Samples:
    """Thumbnails as data URIs, each once, and who was wrong on which."""

    images: tuple[str, ...] = ()
    picks: tuple[Pick, ...] = ()
