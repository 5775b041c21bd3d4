"""One set of images as a guard and a threshold on the softmax see it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from oodshape.images.image_set import ImageSource
from oodshape.metrics.separation import Estimate

LEVEL = 0.95  # of every interval but the promise's


@dataclass(frozen=True, eq=False)
class Scores:
    """One detector's scores of a set, and how many it accepts."""

    values: NDArray[np.float32]
    accepted: int
    p_values: NDArray[np.float64]
    passed: NDArray[np.bool_]  # whether each is accepted

    @property
    def share(self) -> Estimate:
        """The share accepted, with its exact (Clopper-Pearson) interval."""
        return exact_share(self.accepted, len(self.values))


@dataclass(frozen=True, eq=False)
class SetCheck:
    """One set of images: the guard's scores, those of the softmax, and what could not be read."""

    name: str
    guard: Scores
    softmax: Scores | None  # None: the guard knows no threshold on the softmax
    unreadable: dict[str, str]  # path -> why
    # image by image, of those that could be read
    pairs: tuple[tuple[str, int], ...]  # as a listing names them
    classes: NDArray[np.int64]  # predicted
    labels: NDArray[np.int64] | None  # the right ones where they are known, -1 where not
    listing: ImageSource | None  # where the images can be read again; None for prepared tensors

    @property
    def judged(self) -> dict[str, Scores]:
        """The scores by detector: the guard, and the softmax where the guard knows it."""
        return {"guard": self.guard} | ({} if self.softmax is None else {"softmax": self.softmax})


def exact_share(count: int, of: int, level: float = LEVEL) -> Estimate:
    """A share with its exact (Clopper-Pearson) confidence interval.

    >>> round(exact_share(0, 10).high, 6)  # 1 - (0.05 / 2) ** (1 / 10)
    0.308497
    """
    from scipy.stats import beta

    tail = (1 - level) / 2
    low = 0.0 if count == 0 else float(beta.ppf(tail, count, of - count + 1))
    high = 1.0 if count == of else float(beta.ppf(1 - tail, count + 1, of - count))
    return Estimate(count / of, low, high)
