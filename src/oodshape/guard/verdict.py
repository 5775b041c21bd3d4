"""The result for one image: a `Verdict`, or a row of scores (`Scored`)."""

from __future__ import annotations

import math
from typing import NamedTuple


class Verdict(NamedTuple):
    """The network's prediction for one image, and whether it is accepted as in-distribution.

    An image whose features, logits or score are not finite has an `error`, and is not accepted.

    >>> Verdict("cat", 0, score=9.1, p_value=0.62, accepted=True, threshold=7.9).accepted
    True

    Attributes:
        label: The predicted class: its name if names are known, else its number.
        class_index: The number of the predicted class.
        score: The detector's score; higher is more in-distribution.
        p_value: The fraction of calibration images that score this low or lower.
        accepted: Whether the score reaches the threshold.
        threshold: The smallest score that is accepted for this class.
        error: Why there is no decision; empty if there is one.
    """

    label: str | int | None  # the class: its name where names are known
    class_index: int
    score: float  # higher: more in-distribution
    p_value: float  # the fraction of calibration images that score this low or lower
    accepted: bool
    threshold: float  # the smallest score that is accepted for this class
    error: str = ""


NO_SCORE = Verdict(
    None, -1, math.nan, math.nan, False, math.nan, "no score: its features or logits are NaN, infinite or too large"
)


class Scored(NamedTuple):
    """One scored image, or the reason why it could not be read.

    An image that could not be read has no decision: `accepted` is None, which is false in `if row.accepted`, as it
    must be where only accepted images go on. Use `rejected` to count or show rejections.
    """

    path: str  # or what stands for it: image 0, image 1 ...
    label: str | int | None = None  # the class: its name where names are known
    score: float | None = None  # higher: more in-distribution
    p_value: float | None = None  # the fraction of calibration images that score this low or lower
    accepted: bool | None = None  # None: could not be read
    error: str = ""

    @property
    def rejected(self) -> bool:
        """Whether the image was read and is rejected as OOD."""
        return self.accepted is False
