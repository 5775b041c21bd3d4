"""The most and the least trusted images on one page."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from html import escape
from pathlib import Path
from typing import Any

from oodshape.core.errors import InputError
from oodshape.core.words import counted
from oodshape.guard.score import Scored
from oodshape.images.decode import read_image
from oodshape.images.thumbnail import thumbnail
from oodshape.report.html import plain_page, write_html

SHOWN = 24
SIDE = 192  # pixels of a thumbnail's longer side


class Extremes:
    """The highest and the lowest scores of a stream of rows, in constant memory."""

    def __init__(self, shown: int = SHOWN) -> None:
        """Keep so many of each."""
        self.shown, self.seen = shown, 0
        self._high: list[tuple[float, int, Scored]] = []
        self._low: list[tuple[float, int, Scored]] = []

    def add(self, row: Scored) -> None:
        """Look at one more row; those that could not be read have no score."""
        if row.score is None:
            return
        self.seen += 1  # breaks ties: the first of equal scores stays
        for heap, score in ((self._high, row.score), (self._low, -row.score)):
            push = heapq.heappush if len(heap) < self.shown else heapq.heappushpop
            push(heap, (score, -self.seen, row))

    @property
    def most(self) -> list[Scored]:
        """The most trusted, best first."""
        return [row for _, _, row in sorted(self._high, reverse=True)]

    @property
    def least(self) -> list[Scored]:
        """The least trusted, lowest first."""
        return [row for _, _, row in sorted(self._low, reverse=True)]


def write_gallery(extremes: Extremes, path: str | Path, opened: Callable[[str], Any]) -> None:
    """Write the page; `opened` gives what the decoder can open of a row's image."""
    body = [
        f"<p>{counted(extremes.seen, 'image')} {'was' if extremes.seen == 1 else 'were'} scored.</p>",
        f"<h2>Least trusted</h2>\n{_figures(extremes.least, opened)}",
        f"<h2>Most trusted</h2>\n{_figures(extremes.most, opened)}",
    ]
    write_html(path, plain_page("The most and the least trusted images", "\n".join(body)))


def _figures(rows: Iterable[Scored], opened: Callable[[str], Any]) -> str:
    return '<div class="gallery">' + "\n".join(_figure(row, opened) for row in rows) + "</div>"


def _figure(row: Scored, opened: Callable[[str], Any]) -> str:
    verdict = '<span class="yes">accepted</span>' if row.accepted else '<span class="no">rejected</span>'
    return (
        f'<figure><img src="{_thumbnail(row.path, opened)}" alt="{escape(str(row.label))}" title="{escape(row.path)}">'
        f"<figcaption>{verdict} as {escape(str(row.label))}<br>score {row.score:.4g}, p {row.p_value:.3g}<br>"
        f"{escape(Path(row.path).name)}</figcaption></figure>"
    )


def _thumbnail(path: str, opened: Callable[[str], Any]) -> str:
    """The image as a data address; empty where it has gone since."""
    try:
        return thumbnail(read_image(opened(path)), SIDE)
    except (InputError, OSError):
        return "data:,"
