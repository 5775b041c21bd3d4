"""A set of scored images as its page needs it: numbers of all images, a sample to show, tables by class and folder."""

from __future__ import annotations

import heapq
import os
from array import array
from collections.abc import Iterable, Iterator, Sequence
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.images import identity
from oodshape.metrics.comparison import holm
from oodshape.report.pages.html import html_table

Pair = tuple[str, int]
Role = Literal["id", "ood", "new"]
CLEAR = 0.01  # a group stands out where chance would make it so less often, all groups counted
ROWS = 15  # of a table of classes or folders
MOST = 200_000  # numbers of all tables together, about a megabyte; beyond it they stay at the guard's own threshold
MARKED = (
    "Marked: rejected more often than the rest of its set, beyond chance (Fisher's exact test, Holm, 1 %). "
    "Where none is, by chance alone some come first."
)


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


class ShownImage(NamedTuple):
    """One image that may be shown."""

    p_value: float
    score: float
    pair: Pair
    label: str  # predicted
    truth: str  # the right class, empty where it is not known


class ScoredSet:
    """Judged images, one by one: a few numbers of each are kept, and `keep` items; memory does not follow their size.

    Faces are those with the lowest p-values, those with the highest, and some of all by a hash of their names.
    """

    def __init__(self, name: str, role: Role, keep: int, *, alpha: float) -> None:
        """An empty set; `role` says whether its images are familiar, strange, or nobody knows."""
        self.name, self.role, self.keep, self.alpha = name, role, max(keep, 1), alpha
        self.scores, self.p_values, self.softmax_p = array("f"), array("d"), array("d")
        self.by_class, self.by_folder = Groups(), Groups()
        self.has_truth = False  # whether some image's right class is known
        self._kept: tuple[list[tuple[float, int, ShownImage]], ...] = ([], [], [])

    def __len__(self) -> int:
        """How many images it has seen."""
        return len(self.p_values)

    def add(self, item: ShownImage, softmax_p: float | None = None) -> None:
        """Look at one more image."""
        self.scores.append(item.score)
        self.p_values.append(item.p_value)
        if softmax_p is not None:
            self.softmax_p.append(softmax_p)
        self.has_truth |= bool(item.truth)
        self.by_class.add(item.truth or item.label)
        self.by_folder.add(os.path.dirname(item.pair[0]))
        drawn = int(identity.hashed([item.pair[0].encode(errors="surrogateescape")])[0]) / 2**64
        # each heap holds its worst on top: it makes room for better ones; of equals the first stays
        for heap, worth in zip(self._kept, (-item.p_value, item.p_value, -drawn), strict=True):
            push = heapq.heappush if len(heap) < self.keep else heapq.heappushpop
            push(heap, (worth, -len(self), item))

    @property
    def items(self) -> list[ShownImage]:
        """The images to show, the lowest p-value first."""
        low, high, drawn = (sorted(heap, reverse=True) for heap in self._kept)
        third = -(-self.keep // 3)
        found: dict[int, ShownImage] = {}
        for _, number, item in (*low[:third], *high[:third], *drawn):
            if len(found) < self.keep:
                found[number] = item
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


class GroupView(NamedTuple):
    """A table of groups: its head, what its rows are, and whose they are."""

    title: str
    what: str
    scored: ScoredSet
    groups: Groups
    root: str  # the folder that all names begin with

    def named(self, name: str) -> str:
        """A group's name as it is shown."""
        return name.removeprefix(self.root) or name or "."


def group_views(sets: Sequence[ScoredSet]) -> Iterator[GroupView]:
    """The tables of a page: classes of images that may be familiar, and folders that are no classes."""
    for scored in sets:
        classes, folders = scored.by_class, scored.by_folder
        if scored.role != "ood" and len(classes.names) > 1:
            which = "by predicted class" if not scored.has_truth else "by class"
            yield GroupView(f"{scored.name}, {which}: most rejected first", "class", scored, classes, "")
        if len(folders.names) > 1 and {os.path.basename(name) for name in folders.names} != set(classes.names):
            yield GroupView(f"{scored.name}, by folder", "folder", scored, folders, common_folder(folders.names))


def group_tables(sets: Sequence[ScoredSet]) -> str:
    """The tables at the guard's own threshold, as HTML; the page's script counts them again at another."""
    parts = []
    for place, each in enumerate(group_views(sets)):
        groups = each.groups.ranked(each.scored.p_values, each.scored.alpha)
        parts.append(f'<h3>{escape(each.title)}</h3><div data-groups="{place}">{_table(each, groups)}</div>')
    if not parts:
        return "<p>One class, one folder.</p>"
    at = f"At alpha {100 * sets[0].alpha:g} %, the guard's own."
    return "\n".join([f'<p id="groups-at" role="status">{at}</p>', *parts, f'<p class="soft">{MARKED}</p>'])


def group_data(sets: Sequence[ScoredSet], ticks: NDArray[np.float64]) -> list[Any] | None:
    """For each table its groups with what is rejected from which tick on; None where that is too much for a page."""
    found, size = [], 0
    for each in group_views(sets):
        steps = each.groups.steps(each.scored.p_values, ticks)
        size += sum(len(part) + 2 for _, _, part in steps)
        if size > MOST:
            return None
        found.append([[each.named(name), images, part] for name, images, part in steps])
    return found


def _table(table: GroupView, groups: Sequence[Group]) -> str:
    rows = [
        [
            table.named(group.name),
            f"{group.images:,}",
            f"{group.rejected:,}",
            f"{100 * group.rejected / group.images:.1f} %",
            "stands out" if group.stands_out else "",
        ]
        for group in groups[:ROWS]
    ]
    rest = f'<p class="soft">and {len(groups) - ROWS:,} more</p>' if len(groups) > ROWS else ""
    head = [table.what, "images", "rejected", "share", "marked"]
    return html_table(head, rows, f"{table.scored.name} by {table.what}") + rest
