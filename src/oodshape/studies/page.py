"""A study as one HTML file: its table, its notes and its figures; nothing to fetch, nothing to run."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

from oodshape.report.html import html_table, plain_page
from oodshape.report.palette import inline
from oodshape.report.render import cells_of

if TYPE_CHECKING:
    from pandas import DataFrame


def study_page(frame: DataFrame, title: str, notes: Sequence[str], figures: Sequence[Path]) -> str:
    """The page of a study: the frame as a table, and the SVG files as pictures."""
    pictures = [
        f"<figure>{inline(path.read_text(encoding='utf-8'), path.stem, path.stem)}"
        f"<figcaption>{escape(path.stem)}</figcaption></figure>"
        for path in figures
    ]
    parts = [
        html_table([str(name) for name in frame.columns], cells_of(frame)),
        f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>',
        f'<div class="pictures">{"".join(pictures)}</div>',
    ]
    return plain_page(title, "\n".join(parts))
