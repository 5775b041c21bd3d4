"""Judged images by class or folder: which are rejected most often, and at which thresholds."""

from __future__ import annotations

from array import array
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.metrics.paired import holm

CLEAR = 0.01  # a group stands out where chance would make it so less often, all groups counted


class Group(NamedTuple):
    """Images of one class or folder: how many, how many are rejected, and whether that is more than chance."""

    name: str
    images: int
    rejected: int
    stands_out: bool


class Groups:
    """The group of each image, by its name."""

    def __init__(self) -> None:
        """None yet."""
        self.names: dict[str, int] = {}
        self._of = array("i")

    def add(self, name: str) -> None:
        """The group of one more image."""
        self._of.append(self.names.setdefault(name, len(self.names)))

    def ranked(self, p_values: array[float], alpha: float) -> list[Group]:
        """Groups by their share of rejected images, and which of them have more than the rest would make likely."""
        from scipy.stats import fisher_exact

        rejected = np.bincount(self._places[np.asarray(p_values) <= alpha], minlength=len(self.names)).tolist()
        sizes, total, all_out = self._sizes.tolist(), len(self._of), sum(rejected)
        chances = [
            float(fisher_exact([[r, n - r], [all_out - r, total - n - (all_out - r)]], alternative="greater").pvalue)
            for n, r in zip(sizes, rejected, strict=True)
        ]
        clear = [chance < CLEAR for chance in holm(chances)] if len(chances) > 1 else [False] * len(chances)
        rows = map(Group, self.names, sizes, rejected, clear)
        return sorted(rows, key=lambda row: (-row.rejected / row.images, -row.images, row.name))

    def steps(self, p_values: array[float], ticks: NDArray[np.float64]) -> list[tuple[str, int, list[int]]]:
        """(name, images, steps) of each group: at the tick of that place so many more are rejected, place by place.

        >>> groups, p_values = Groups(), array("d", [0.01, 0.2, 0.2, 0.9])
        >>> for name in ("cat", "cat", "dog", "dog"):
        ...     groups.add(name)
        >>> groups.steps(p_values, np.array([0.05, 0.1, 0.2]))
        [('cat', 2, [0, 1, 2, 1]), ('dog', 2, [2, 1])]
        """
        at = np.searchsorted(ticks, np.asarray(p_values), side="left")  # rejected from this tick on
        pairs = self._places.astype(np.int64) * (len(ticks) + 1) + at
        found, counts = np.unique(pairs[at < len(ticks)], return_counts=True)
        steps: list[list[int]] = [[] for _ in self.names]
        for pair, count in zip(found.tolist(), counts.tolist(), strict=True):
            group, place = divmod(pair, len(ticks) + 1)
            steps[group] += [place, count]
        return list(zip(self.names, self._sizes.tolist(), steps, strict=True))

    @property
    def _places(self) -> NDArray[np.int32]:
        return np.asarray(self._of, np.int32)

    @property
    def _sizes(self) -> NDArray[np.int64]:
        return np.bincount(self._places, minlength=len(self.names))
