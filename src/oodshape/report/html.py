"""A small self-contained HTML page: no network, no other file, light and dark."""

from __future__ import annotations

from html import escape
from pathlib import Path

from oodshape.core.files import replacing

ID_COLOR, OOD_COLOR = "#0072b2", "#d55e00"
_CSS = """
:root { color-scheme: light dark; --text: #1c1c1e; --soft: #5f6368; --ground: #fff; --line: #d8dadf; --tint: #f4f5f7 }
@media (prefers-color-scheme: dark) {
  :root { --text: #e6e6e8; --soft: #a3a7ae; --ground: #16171a; --line: #3a3d43; --tint: #212328 }
}
* { box-sizing: border-box }
body { margin: 0 auto; padding: 1rem 1rem 3rem; max-width: 70rem; color: var(--text); background: var(--ground);
  font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere }
h1 { font-size: 1.6rem; line-height: 1.2; margin: .5rem 0 }
h2 { font-size: 1.2rem; margin: 2rem 0 .5rem }
p { max-width: 46rem; margin: .5rem 0 }
.soft, figcaption { color: var(--soft); font-size: .85rem }
.scroll { overflow-x: auto; width: fit-content; max-width: 100%; border: 1px solid var(--line); border-radius: 6px }
table { border-spacing: 0; font-size: .9rem; font-variant-numeric: tabular-nums; overflow-wrap: normal }
th, td { padding: .3rem .7rem; text-align: right; white-space: nowrap }
th { font-weight: 600; border-bottom: 1px solid var(--line) }
th:first-child, td:first-child, td:nth-child(2), th:nth-child(2) { text-align: left }
tbody tr:hover > * { background: var(--tint) }
svg { max-width: 100%; height: auto; display: block }
figure { margin: .5rem 0 }
.gallery { display: grid; grid-template-columns: repeat(auto-fill, minmax(9rem, 1fr)); gap: .8rem }
.gallery figure { margin: 0 }
.gallery img { width: 100%; height: 8rem; object-fit: contain; background: var(--tint); border-radius: 6px }
.yes { color: #0072b2 } .no { color: #d55e00 }
@media (prefers-color-scheme: dark) { .yes { color: #56b4e9 } .no { color: #e69f00 } }
"""


def write_page(path: str | Path, title: str, body: str) -> None:
    """Write a page, whole or not at all; the browser itself refuses anything that is not in it."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>{_CSS}</style>\n</head>\n<body>\n<main>\n"
        f"<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def html_table(head: list[str], rows: list[list[str]]) -> str:
    """A table of text; its cells are escaped."""
    top = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table></div>'
