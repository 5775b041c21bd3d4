"""Verdict: what is said about one image, and what all that is said about images has in common."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Verdict(NamedTuple):
    """What the network says about one image, and whether to trust it."""

    label: str | int  # the class: its name where names are known
    class_index: int
    score: float  # higher: more like the training images
    p_value: float  # the share of held-out ID images with a score as low
    accepted: bool
    threshold: float  # the smallest score that is accepted for this class


class Judged(Protocol):
    """What is known of an image that was judged, or could not be read: a Verdict, or a row of scores."""

    @property
    def label(self) -> str | int | None:
        """The class."""
        ...

    @property
    def p_value(self) -> float | None:
        """None: it could not be read."""
        ...
