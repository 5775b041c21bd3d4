"""A study as one HTML file: its table, its notes and its figures; nothing to fetch, nothing to run."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from oodshape.report.frames import cells_of

if TYPE_CHECKING:
    from pandas import DataFrame


def study_page(frame: DataFrame, title: str, notes: Sequence[str], figures: Sequence[Path]) -> str:
    """The page of a study: the frame as a table, and the SVG files as pictures."""
    css = (files("oodshape.report") / "web" / "page.css").read_text(encoding="utf-8")
    heads = "".join(f'<th scope="col">{escape(str(name))}</th>' for name in frame.columns)
    rows = ["".join(f"<td>{escape(cell)}</td>" for cell in row) for row in cells_of(frame)]
    pictures = [
        f'<figure><img alt="{escape(path.stem)}" src="data:image/svg+xml;base64,'
        f'{b64encode(path.read_bytes()).decode()}"><figcaption>{escape(path.stem)}</figcaption></figure>'
        for path in figures
    ]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta http-equiv="Content-Security-Policy"'
            " content=\"default-src 'none'; img-src data:; style-src 'unsafe-inline'\">",
            f"<title>{escape(title)}</title>\n<style>{css}</style>\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>",
            '<div class="scroll" tabindex="0" role="region" aria-label="Table"><table>',
            f"<thead><tr>{heads}</tr></thead>\n<tbody>",
            *(f"<tr>{row}</tr>" for row in rows),
            "</tbody></table></div>",
            f'<ul class="notes">{"".join(f"<li>{escape(note)}</li>" for note in notes)}</ul>',
            f'<div class="pictures">{"".join(pictures)}</div>',
            "</main>\n</body>\n</html>\n",
        ]
    )
