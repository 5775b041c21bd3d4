"""A study as one HTML file: what it shows, its table, notes and figures; nothing to fetch, nothing to run."""

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


def study_page(frame: DataFrame, title: str, finding: str, notes: Sequence[str], figures: Sequence[Path]) -> str:
    """The page of a study: the sentence first, the frame as a table, and the SVG files as pictures."""
    pictures = [
        f"<figure>{inline(path.read_text(encoding='utf-8'), path.stem, path.stem)}"
        f"<figcaption>{escape(path.stem)}</figcaption></figure>"
        for path in figures
    ]
    parts = [
        f"<p><strong>{escape(finding)}</strong></p>",
        html_table([str(name) for name in frame.columns], cells_of(frame)),
        _listed(notes),
        f'<div class="pictures">{"".join(pictures)}</div>',
    ]
    return plain_page(title, "\n".join(parts))


def index_page(studies: Sequence[tuple[str, str, str]], notes: Sequence[str]) -> str:
    """The page that leads to studies, each a name with its title and what it shows."""
    entries = "".join(
        f'<dt><a href="{escape(name)}.html">{escape(name)}</a>: {escape(title)}</dt><dd>{escape(finding)}</dd>'
        for name, title, finding in studies
    )
    return plain_page("Studies", f"<dl>{entries}</dl>\n{_listed(notes)}")


def _listed(notes: Sequence[str]) -> str:
    return f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>'
