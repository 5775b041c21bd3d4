"""The page of judged images: what passes, at which threshold, and why single images do not. One file, no request."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from oodshape.core.words import counted
from oodshape.guard.describe import lines
from oodshape.guard.fitted import Fitted
from oodshape.report.crowd import Crowd
from oodshape.report.group_tables import group_tables
from oodshape.report.html import document, page_json, web_file

SCRIPTS = ("elements.js", "groups.js", "judged.js")
_AXIS = (
    "All panels have one axis, and both of its ends hold what lies beyond them. Reading a threshold off the strange "
    "images shown here and using it would be tuning on the test: the promise holds for an alpha that was chosen before."
)


@dataclass(frozen=True)
class Origin:
    """Where a page comes from, as far as who writes it knows."""

    command: str = ""
    guard: str = ""  # its file


def judged_page(
    title: str,
    verdict: Sequence[str],
    guard: Fitted,
    crowds: Sequence[Crowd],
    data: Mapping[str, Any],
    origin: Origin,
    more: Mapping[str, tuple[str, str]],
) -> str:
    """The page's HTML: `verdict` are sentences and `more` sections by id, (title, body), both as HTML."""
    sections = [
        f'<section id="{name}" aria-labelledby="{name}-title">\n<h2 id="{name}-title">{head}</h2>\n{body}\n</section>'
        for name, (head, body) in more.items()
    ]
    parts = {
        "title": escape(title),
        "verdict": f'<div class="verdict">{"".join(f"<p>{said}</p>" for said in verdict)}</div>',
        "facts": _facts(guard, origin),
        "axis": _AXIS,
        "shown": escape(_shown(crowds, len(data["faces"]))),
        "groups": group_tables(crowds),
        "links": "".join(f'<a href="#{name}">{head}</a> ' for name, (head, _) in more.items()),
        "more": "\n".join(sections),
        "origin": _described(guard),
        "data": page_json(data),
    }
    body = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], web_file("judged.html").rstrip())
    return document(title, body, "\n".join(map(web_file, SCRIPTS)), web_file("judged.css"))


def _facts(guard: Fitted, origin: Origin) -> str:
    """Network, guard, method, date, command."""
    about = guard.about
    weights = f" with {Path(about.weights).name}" if about.weights else ""
    method = dict(lines(guard)).get("method", about.method)
    told = {
        "network": f"{about.model or 'given in Python'}{weights} ({about.network})",
        "guard": Path(origin.guard).name or "in memory",
        "method": method,
        "promise": guard.promise,
        "date": date.today().isoformat(),
        "command": origin.command,
    }
    rows = (f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in told.items() if value)
    return f"<dl>{''.join(rows)}</dl>"


def _described(guard: Fitted) -> str:
    rows = (f"<dt>{escape(str(what))}</dt><dd>{escape(str(value))}</dd>" for what, value in lines(guard))
    return f"<dl>{''.join(rows)}</dl>"


def _shown(crowds: Sequence[Crowd], faces: int) -> str:
    total = sum(map(len, crowds))
    if faces == total:
        first = "" if all(crowd.role == "new" for crowd in crowds) else ", mistakes first"
        return f"All {counted(total, 'image')}, sorted by p-value{first}." if total > 1 else ""
    return (
        f"A sample: {faces:,} of {total:,} images. Of each set those with the lowest p-values, those with the highest, "
        "and some of all; every figure above and below counts all images."
    )
