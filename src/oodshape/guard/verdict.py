"""Verdict: what is said about one image."""

from __future__ import annotations

from typing import NamedTuple


class Verdict(NamedTuple):
    """What the network says about one image, and whether to trust it."""

    label: str | int  # the class: its name where names are known
    class_index: int
    score: float  # higher: more like the training images
    p_value: float  # the share of held-out ID images with a score as low
    accepted: bool
    threshold: float  # the smallest score that is accepted for this class
