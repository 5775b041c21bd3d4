"""The skeleton of every page: one file, no network, light and dark; the browser refuses whatever is not in it."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files
from pathlib import Path
from typing import Any

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.report.palette import page_css


def read_web(name: str) -> str:
    """The text of a file in `web`."""
    return (files(__package__) / "web" / name).read_text(encoding="utf-8")


def fill_template(name: str, parts: Mapping[str, str], sections: Mapping[str, tuple[str, str]]) -> str:
    """The text of a file in `web` with `parts` in the places of their names: {{name}}.

    `sections` are further sections by id, as (title, body): {{links}} lead to them, {{more}} are the sections.
    """
    links = "".join(f'<a href="#{each}">{head}</a> ' for each, (head, _) in sections.items())
    more = "\n".join(
        f'<section id="{each}" aria-labelledby="{each}-title">\n<h2 id="{each}-title">{head}</h2>\n{body}\n</section>'
        for each, (head, body) in sections.items()
    )
    known = {**parts, "links": links, "more": more}
    return re.sub(r"\{\{(\w+)\}\}", lambda found: known[found[1]], read_web(name).rstrip())


def write_page(path: str | Path, title: str, body: str, scripts: Sequence[str], style: str, later: str = "") -> None:
    """Write a whole page atomically: the head with the style of all pages and its own, the body, the files of scripts,
    the only ones to run, and what they may do without at first."""
    script = "\n".join(map(read_web, scripts))
    digest = b64encode(sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    styles = page_css() + read_web("page.css") + read_web(style)
    text = (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        f"<title>{escape(title)}</title>\n<style>\n{styles}</style>\n</head>\n"
        f'<body>\n<a class="skip" href="#main">Skip to content</a>\n{body}\n'
        f"<script>{script}</script>\n{later}</body>\n</html>\n"
    )
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", errors="replace")


def banner(kind: str, head: str, body: str) -> str:
    """The decision on top of a page: `kind` is ok, warn or bad, `head` text, `body` HTML."""
    return f'<div class="banner {kind}"><b>{escape(head)}</b>{body}</div>'


def tiles(found: Iterable[tuple[str, str, str]]) -> str:
    """Numbers next to each other: what, value and note; HTML."""
    parts = (f"<div><small>{what}</small><b>{value}</b><small>{note}</small></div>" for what, value, note in found)
    return f'<div class="tiles">{"".join(parts)}</div>'


def definitions(facts: Iterable[tuple[str, Any]]) -> str:
    """A list of names and values, in which tables can be opened."""
    parts = []
    for name, value in facts:
        if isinstance(value, Mapping):
            count = "1 entry" if len(value) == 1 else f"{len(value)} entries"
            rows = definitions(value.items())
            inner = f"<details><summary>{count}</summary>{rows}</details>" if value else "none"
        else:
            inner = escape(str(value))
        parts.append(f"<dt>{escape(name)}</dt><dd>{inner}</dd>")
    return f"<dl>{''.join(parts)}</dl>"


def page_json(data: Any) -> str:
    """JSON that no HTML parser takes for the end of a script, whatever the names in it."""
    try:
        text = json.dumps(data, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    except ValueError as error:
        raise InputError(f"the results hold a number that is not finite: {error}") from None
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def html_table(head: Sequence[str], rows: Sequence[Sequence[str]], label: str = "Table") -> str:
    """A table of text, numbers to the right and words to the left; its cells are escaped.

    >>> html_table(["set", "AUROC"], [["a < b", "93.1"]]).splitlines()[1]
    '<tbody><tr><td class="words">a &lt; b</td><td>93.1</td></tr>'
    """
    words = [not all(row[place][:1] in (*"0123456789+-.", "") for row in rows) for place in range(len(head))]
    kinds = [' class="words"' if is_word else "" for is_word in words]
    top = "".join(f'<th scope="col"{kind}>{escape(cell)}</th>' for kind, cell in zip(kinds, head, strict=True))
    lines = ["".join(f"<td{kind}>{escape(cell)}</td>" for kind, cell in zip(kinds, row, strict=True)) for row in rows]
    body = "".join(f"<tr>{line}</tr>\n" for line in lines)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}"><table>'
        f"<thead><tr>{top}</tr></thead>\n<tbody>{body}</tbody></table></div>"
    )
