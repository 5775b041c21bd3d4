"""A set of scored images for its page: numbers of all images, a sample to show, tables by class."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from html import escape
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.core.text import format_rate
from oodshape.images import identity
from oodshape.report.pages.html import html_table

Pair = tuple[str, int]
Role = Literal["id", "ood", "new"]
CLEAR = 0.01  # significance level
ROWS = 15  # rows of a table of classes
FEW = 10  # a class of fewer images has no rate
NOTE = f"The order may be chance. Classes of fewer than {FEW} images have no rate and come last."


class ClassCount(NamedTuple):
    """Images of one class, and how many are rejected."""

    name: str
    images: int
    rejected: int


class ShownImage(NamedTuple):
    """An image that may be shown."""

    p_value: float
    score: float
    pair: Pair
    label: str  # predicted


class ScoredSet:
    """Scored images, added one by one: a few numbers of each are kept, and at most `keep` images to show.

    Those are the images with the lowest and the highest p-values, and a random subset by a hash of their names.
    """

    def __init__(self, name: str, role: Role, keep: int, *, alpha: float) -> None:
        self.name, self.role, self.keep, self.alpha = name, role, max(keep, 1), alpha
        self.scores, self.p_values, self.softmax_p = array("f"), array("d"), array("d")
        self.names: dict[str, int] = {}  # of classes -> their numbers
        self._classes = array("i")
        self._kept: tuple[list[tuple[float, int, ShownImage]], ...] = ([], [], [])

    def __len__(self) -> int:
        return len(self.p_values)

    def add(self, item: ShownImage, softmax_p: float | None = None) -> None:
        """Add an image."""
        self.scores.append(item.score)
        self.p_values.append(item.p_value)
        if softmax_p is not None:
            self.softmax_p.append(softmax_p)
        self._classes.append(self.names.setdefault(item.label, len(self.names)))
        drawn = int(identity.hash_each([item.pair[0].encode(errors="surrogateescape")])[0]) / 2**64
        # the worst image is at the top of each heap and is replaced first; among equals the first stays
        for heap, worth in zip(self._kept, (-item.p_value, item.p_value, -drawn), strict=True):
            push = heapq.heappush if len(heap) < self.keep else heapq.heappushpop
            push(heap, (worth, -len(self), item))

    @property
    def items(self) -> list[ShownImage]:
        """The images to show, by ascending p-value."""
        low, high, drawn = (sorted(heap, reverse=True) for heap in self._kept)
        third = -(-self.keep // 3)
        found: dict[int, ShownImage] = {}
        for _, number, item in (*low[:third], *high[:third], *drawn):
            if len(found) < self.keep:
                found[number] = item
        return [found[number] for number in sorted(found, key=lambda number: (found[number].p_value, -number))]

    @property
    def classes(self) -> list[ClassCount]:
        """The predicted classes; the highest rejection rate first, small ones last."""
        places = np.asarray(self._classes, np.int32)
        sizes = np.bincount(places, minlength=len(self.names)).tolist()
        rejected = np.bincount(places[np.asarray(self.p_values) <= self.alpha], minlength=len(self.names)).tolist()
        rows = map(ClassCount, self.names, sizes, rejected)
        return sorted(rows, key=lambda row: (row.images < FEW, -row.rejected / row.images, -row.images, row.name))

    def rejected(self, ticks: NDArray[np.float64], *, softmax: bool = False) -> list[int]:
        """Count the images that are rejected at each alpha in `ticks`."""
        values = np.sort(np.asarray(self.softmax_p if softmax else self.p_values, np.float64))
        return list(map(int, np.searchsorted(values, ticks, side="right")))


def class_tables(sets: Sequence[ScoredSet]) -> str:
    """Return tables of the classes at the guard's threshold, of images that may be ID."""
    parts = []
    for scored in sets:
        if scored.role != "ood" and len(scored.names) > 1:
            parts += [f"<h3>{escape(scored.name)}, by predicted class: most rejected first</h3>", _table(scored)]
    if not parts:
        return "<p>One class.</p>"
    at = f"At alpha = {100 * sets[0].alpha:g} %, that of the guard."
    return "\n".join([f"<p>{at}</p>", *parts, f'<p class="soft">{NOTE}</p>'])


def _table(scored: ScoredSet) -> str:
    """The first classes."""
    classes = scored.classes
    rows = []
    for each in classes[:ROWS]:
        rate = format_rate(each.rejected / each.images) if each.images >= FEW else "–"
        rows.append([each.name, f"{each.images:,}", f"{each.rejected:,}", rate])
    rest = f'<p class="soft">and {len(classes) - ROWS:,} more</p>' if len(classes) > ROWS else ""
    return html_table(["class", "images", "rejected", "rate"], rows, f"{scored.name} by class") + rest
