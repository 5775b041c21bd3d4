"""A set of judged images as a page needs it: numbers of all of them, and a few to look at."""

from __future__ import annotations

import heapq
import os
from array import array
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.images import identity
from oodshape.metrics.paired import holm

Pair = tuple[str, int]
Role = Literal["id", "ood", "new"]
CLEAR = 0.01  # a group stands out where chance would make it so less often, all groups counted


class Face(NamedTuple):
    """One image that may be shown."""

    p_value: float
    score: float
    pair: Pair
    label: str  # predicted
    truth: str  # the right class, empty where it is not known


class Group(NamedTuple):
    """Images of one class or folder: how many, how many are rejected, and whether that is more than chance."""

    name: str
    images: int
    rejected: int
    stands_out: bool


class Crowd:
    """Judged images, one by one: two numbers of each are kept, and `keep` faces; memory does not follow their size.

    Faces are those with the lowest p-values, those with the highest, and some of all by a hash of their names.
    """

    def __init__(self, name: str, role: Role, keep: int, *, alpha: float) -> None:
        """An empty set; `role` says whether its images are familiar, strange, or nobody knows."""
        self.name, self.role, self.keep, self.alpha = name, role, max(keep, 1), alpha
        self.scores, self.p_values, self.softmax_p = array("f"), array("d"), array("d")
        self._classes: dict[str, list[int]] = {}
        self._folders: dict[str, list[int]] = {}
        self.has_truth = False  # whether some image's right class is known
        self._kept: tuple[list[tuple[float, int, Face]], ...] = ([], [], [])

    def __len__(self) -> int:
        """How many images it has seen."""
        return len(self.p_values)

    def add(self, face: Face, softmax_p: float | None = None) -> None:
        """Look at one more image."""
        self.scores.append(face.score)
        self.p_values.append(face.p_value)
        if softmax_p is not None:
            self.softmax_p.append(softmax_p)
        rejected = face.p_value <= self.alpha
        self.has_truth |= bool(face.truth)
        for groups, name in ((self._classes, face.truth or face.label), (self._folders, os.path.dirname(face.pair[0]))):
            counts = groups.setdefault(name, [0, 0])
            counts[0], counts[1] = counts[0] + 1, counts[1] + rejected
        drawn = int(identity.hashed([face.pair[0].encode(errors="surrogateescape")])[0]) / 2**64
        # each heap holds its worst on top: it makes room for better ones; of equals the first stays
        for heap, worth in zip(self._kept, (-face.p_value, face.p_value, -drawn), strict=True):
            push = heapq.heappush if len(heap) < self.keep else heapq.heappushpop
            push(heap, (worth, -len(self), face))

    @property
    def faces(self) -> list[Face]:
        """The images to show, the lowest p-value first."""
        low, high, drawn = (sorted(heap, reverse=True) for heap in self._kept)
        third = -(-self.keep // 3)
        found: dict[int, Face] = {}
        for _, number, face in (*low[:third], *high[:third], *drawn):
            if len(found) < self.keep:
                found[number] = face
        return [found[number] for number in sorted(found, key=lambda number: (found[number].p_value, -number))]

    @property
    def classes(self) -> list[Group]:
        """Right classes where they are known, else predicted ones; the most often rejected first."""
        return _ranked(self._classes)

    @property
    def folders(self) -> list[Group]:
        """The folders of the images, the most often rejected first."""
        return _ranked(self._folders)

    def rejected(self, ticks: NDArray[np.float64], *, softmax: bool = False) -> list[int]:
        """How many images have a p-value of at most each tick: those that are rejected at that alpha."""
        values = np.sort(np.asarray(self.softmax_p if softmax else self.p_values, np.float64))
        found: list[int] = np.searchsorted(values, ticks, side="right").tolist()
        return found


def _ranked(groups: dict[str, list[int]]) -> list[Group]:
    """Groups by their share of rejected images, and which of them have more than the rest would make likely."""
    from scipy.stats import fisher_exact

    total, all_out = (sum(counts[at] for counts in groups.values()) for at in (0, 1))
    names = list(groups)
    chances: Sequence[float] = [
        float(fisher_exact([[r, n - r], [all_out - r, total - n - (all_out - r)]], alternative="greater").pvalue)
        for n, r in (groups[name] for name in names)
    ]
    clear = [chance < CLEAR for chance in holm(chances)] if len(names) > 1 else [False] * len(names)
    rows = (Group(name, groups[name][0], groups[name][1], out) for name, out in zip(names, clear, strict=True))
    return sorted(rows, key=lambda row: (-row.rejected / row.images, -row.images, row.name))


def common_folder(names: Iterable[str]) -> str:
    """The folder that all of these folders lie in, with its separator; empty where there is none.

    >>> common_folder(["/a/inbox/x", "/a/inbox/y/z"])
    '/a/inbox/'
    """
    found = list(names)
    try:
        shared = os.path.commonpath(found) if found else ""
    except ValueError:  # some absolute, some not
        return ""
    return os.path.join(shared, "") if shared else ""
