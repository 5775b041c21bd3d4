"""A set of scored images for its page: numbers of all images, a sample to show, tables by class and folder."""

from __future__ import annotations

import heapq
import os
from array import array
from collections.abc import Iterable, Sequence
from html import escape
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.images import identity
from oodshape.report.pages.html import html_table

Pair = tuple[str, int]
Role = Literal["id", "ood", "new"]
CLEAR = 0.01  # significance level
ROWS = 15  # rows of a table of classes or folders
FEW = 10  # a group of fewer images has no rate
NOTE = f"The order may be chance. Groups of fewer than {FEW} images have no rate and come last."


class ImageGroup(NamedTuple):
    """Images of one class or folder: their number, and how many are rejected."""

    name: str
    images: int
    rejected: int


class ImageGroups:
    """The group of each image."""

    def __init__(self) -> None:
        self.names: dict[str, int] = {}
        self._of = array("i")

    def add(self, name: str) -> None:
        """Add the group of an image."""
        self._of.append(self.names.setdefault(name, len(self.names)))

    def rank(self, p_values: array[float], alpha: float) -> list[ImageGroup]:
        """Sort the groups by their rejection rate, small ones last."""
        places = np.asarray(self._of, np.int32)
        sizes = np.bincount(places, minlength=len(self.names)).tolist()
        rejected = np.bincount(places[np.asarray(p_values) <= alpha], minlength=len(self.names)).tolist()
        rows = map(ImageGroup, self.names, sizes, rejected)
        return sorted(rows, key=lambda row: (row.images < FEW, -row.rejected / row.images, -row.images, row.name))


class ShownImage(NamedTuple):
    """An image that may be shown."""

    p_value: float
    score: float
    pair: Pair
    label: str  # predicted
    truth: str  # the true class, empty if unknown


class ScoredSet:
    """Scored images, added one by one: a few numbers of each are kept, and at most `keep` images to show.

    Those are the images with the lowest and the highest p-values, and a random subset by a hash of their names.
    """

    def __init__(self, name: str, role: Role, keep: int, *, alpha: float) -> None:
        self.name, self.role, self.keep, self.alpha = name, role, max(keep, 1), alpha
        self.scores, self.p_values, self.softmax_p = array("f"), array("d"), array("d")
        self.by_class, self.by_folder = ImageGroups(), ImageGroups()
        self.has_truth = False  # whether the true class of any image is known
        self._kept: tuple[list[tuple[float, int, ShownImage]], ...] = ([], [], [])

    def __len__(self) -> int:
        return len(self.p_values)

    def add(self, item: ShownImage, softmax_p: float | None = None) -> None:
        """Add an image."""
        self.scores.append(item.score)
        self.p_values.append(item.p_value)
        if softmax_p is not None:
            self.softmax_p.append(softmax_p)
        self.has_truth |= bool(item.truth)
        self.by_class.add(item.truth or item.label)
        self.by_folder.add(os.path.dirname(item.pair[0]))
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
    def classes(self) -> list[ImageGroup]:
        """True classes if known, else predicted ones; the highest rejection rate first."""
        return self.by_class.rank(self.p_values, self.alpha)

    @property
    def folders(self) -> list[ImageGroup]:
        """The folders of the images; the highest rejection rate first."""
        return self.by_folder.rank(self.p_values, self.alpha)

    def rejected(self, ticks: NDArray[np.float64], *, softmax: bool = False) -> list[int]:
        """Count the images that are rejected at each alpha in `ticks`."""
        values = np.sort(np.asarray(self.softmax_p if softmax else self.p_values, np.float64))
        found: list[int] = np.searchsorted(values, ticks, side="right").tolist()
        return found


def _find_common_folder(names: Iterable[str]) -> str:
    """Return the common parent of these folders with its separator; empty if there is none.

    >>> find_common_folder(["/a/inbox/x", "/a/inbox/y/z"])
    '/a/inbox/'
    """
    found = list(names)
    try:
        shared = os.path.commonpath(found) if found else ""
    except ValueError:  # some absolute, some not
        return ""
    return os.path.join(shared, "") if shared else ""


def make_group_tables(sets: Sequence[ScoredSet]) -> str:
    """Return tables at the guard's threshold: classes of images that may be ID, and folders that are not classes."""
    parts = []
    for scored in sets:
        classes, folders = scored.by_class.names, scored.by_folder.names
        if scored.role != "ood" and len(classes) > 1:
            which = "by class" if scored.has_truth else "by predicted class"
            parts += [f"<h3>{escape(scored.name)}, {which}: most rejected first</h3>"]
            parts += [_table(scored.name, "class", scored.classes, "")]
        if len(folders) > 1 and {os.path.basename(name) for name in folders} != set(classes):
            parts += [f"<h3>{escape(scored.name)}, by folder</h3>"]
            parts += [_table(scored.name, "folder", scored.folders, _find_common_folder(folders))]
    if not parts:
        return "<p>One class, one folder.</p>"
    at = f"At alpha = {100 * sets[0].alpha:g} %, that of the guard."
    return "\n".join([f"<p>{at}</p>", *parts, f'<p class="soft">{NOTE}</p>'])


def _table(name: str, what: str, groups: Sequence[ImageGroup], root: str) -> str:
    """The first groups; their names are shown without the common folder `root`."""
    rows = [
        [
            group.name.removeprefix(root) or group.name or ".",
            f"{group.images:,}",
            f"{group.rejected:,}",
            f"{100 * group.rejected / group.images:.1f} %" if group.images >= FEW else "–",
        ]
        for group in groups[:ROWS]
    ]
    rest = f'<p class="soft">and {len(groups) - ROWS:,} more</p>' if len(groups) > ROWS else ""
    return html_table([what, "images", "rejected", "rate"], rows, f"{name} by {what}") + rest
