"""A set of judged images as a page needs it: numbers of all of them, and a few to look at."""

from __future__ import annotations

import heapq
import os
from array import array
from collections.abc import Iterable
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.images import identity
from oodshape.report.groups import Group, Groups

Pair = tuple[str, int]
Role = Literal["id", "ood", "new"]


class Face(NamedTuple):
    """One image that may be shown."""

    p_value: float
    score: float
    pair: Pair
    label: str  # predicted
    truth: str  # the right class, empty where it is not known


class Crowd:
    """Judged images, one by one: a few numbers of each are kept, and `keep` faces; memory does not follow their size.

    Faces are those with the lowest p-values, those with the highest, and some of all by a hash of their names.
    """

    def __init__(self, name: str, role: Role, keep: int, *, alpha: float) -> None:
        """An empty set; `role` says whether its images are familiar, strange, or nobody knows."""
        self.name, self.role, self.keep, self.alpha = name, role, max(keep, 1), alpha
        self.scores, self.p_values, self.softmax_p = array("f"), array("d"), array("d")
        self.by_class, self.by_folder = Groups(), Groups()
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
        self.has_truth |= bool(face.truth)
        self.by_class.add(face.truth or face.label)
        self.by_folder.add(os.path.dirname(face.pair[0]))
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
        return self.by_class.ranked(self.p_values, self.alpha)

    @property
    def folders(self) -> list[Group]:
        """The folders of the images, the most often rejected first."""
        return self.by_folder.ranked(self.p_values, self.alpha)

    def rejected(self, ticks: NDArray[np.float64], *, softmax: bool = False) -> list[int]:
        """How many images have a p-value of at most each tick: those that are rejected at that alpha."""
        values = np.sort(np.asarray(self.softmax_p if softmax else self.p_values, np.float64))
        found: list[int] = np.searchsorted(values, ticks, side="right").tolist()
        return found


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
