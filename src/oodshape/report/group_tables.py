"""Which classes and folders reject most of their own images: tables that follow the threshold of their page."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from html import escape
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.report.crowd import Crowd, common_folder
from oodshape.report.groups import Group, Groups
from oodshape.report.html import html_table

ROWS = 15  # of a table of classes or folders
MOST = 200_000  # numbers of all tables together, about a megabyte; beyond it they stay at the guard's own threshold
MARKED = (
    "Marked: rejected more often than the rest of its set, beyond chance (Fisher's exact test, Holm, 1 %). "
    "Where none is, by chance alone some come first."
)


class Shown(NamedTuple):
    """A table of groups: its head, what its rows are, and whose they are."""

    title: str
    what: str
    crowd: Crowd
    groups: Groups
    root: str  # the folder that all names begin with

    def named(self, name: str) -> str:
        """A group's name as it is shown."""
        return name.removeprefix(self.root) or name or "."


def shown(crowds: Sequence[Crowd]) -> Iterator[Shown]:
    """The tables of a page: classes of images that may be familiar, and folders that are no classes."""
    for crowd in crowds:
        classes, folders = crowd.by_class, crowd.by_folder
        if crowd.role != "ood" and len(classes.names) > 1:
            which = "by predicted class" if not crowd.has_truth else "by class"
            yield Shown(f"{crowd.name}, {which}: most rejected first", "class", crowd, classes, "")
        if len(folders.names) > 1 and {os.path.basename(name) for name in folders.names} != set(classes.names):
            yield Shown(f"{crowd.name}, by folder", "folder", crowd, folders, common_folder(folders.names))


def group_tables(crowds: Sequence[Crowd]) -> str:
    """The tables at the guard's own threshold, as HTML; the page's script counts them again at another."""
    parts = []
    for place, each in enumerate(shown(crowds)):
        groups = each.groups.ranked(each.crowd.p_values, each.crowd.alpha)
        parts.append(f'<h3>{escape(each.title)}</h3><div data-groups="{place}">{_table(each, groups)}</div>')
    if not parts:
        return "<p>One class, one folder.</p>"
    at = f"At alpha {100 * crowds[0].alpha:g} %, the guard's own."
    return "\n".join([f'<p id="groups-at" role="status">{at}</p>', *parts, f'<p class="soft">{MARKED}</p>'])


def group_data(crowds: Sequence[Crowd], ticks: NDArray[np.float64]) -> list[Any] | None:
    """For each table its groups with what is rejected from which tick on; None where that is too much for a page."""
    found, size = [], 0
    for each in shown(crowds):
        steps = each.groups.steps(each.crowd.p_values, ticks)
        size += sum(len(part) + 2 for _, _, part in steps)
        if size > MOST:
            return None
        found.append([[each.named(name), images, part] for name, images, part in steps])
    return found


def _table(table: Shown, groups: Sequence[Group]) -> str:
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
    return html_table(head, rows, f"{table.crowd.name} by {table.what}") + rest
