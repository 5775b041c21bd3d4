"""The page of judged images: what passes, at which threshold, and why single images do not. One file, no request."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from oodshape.guard.describe import lines
from oodshape.guard.fitted import Fitted
from oodshape.report.crowd import Crowd, Group, common_folder
from oodshape.report.html import document, html_table, page_json, web_file

SCRIPTS = ("elements.js", "judged.js")
ROWS = 15  # of a table of classes or folders
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
        "groups": _groups(crowds),
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
        return f"All {total:,} images, sorted by p-value, mistakes first."
    return (
        f"A sample: {faces:,} of {total:,} images. Of each set those with the lowest p-values, those with the highest, "
        "and some of all; every figure above and below counts all images."
    )


def _groups(crowds: Sequence[Crowd]) -> str:
    """Which classes reject most of their own images, and which folders stand out."""
    parts = []
    for crowd in crowds:
        if crowd.role != "ood" and len(crowd.classes) > 1:
            which = "by predicted class" if not crowd.has_truth else "by class"
            words = f"{escape(crowd.name)}, {which}: most rejected first"
            parts.append(f"<h3>{words}</h3>{_table('class', crowd, crowd.classes, '')}")
        folders = {os.path.basename(group.name) for group in crowd.folders}
        if len(crowd.folders) > 1 and folders != {group.name for group in crowd.classes}:
            root = common_folder(group.name for group in crowd.folders)
            parts.append(f"<h3>{escape(crowd.name)}, by folder</h3>{_table('folder', crowd, crowd.folders, root)}")
    groups = [group for crowd in crowds for group in (*crowd.classes, *crowd.folders)]
    none = "" if any(group.stands_out for group in groups) else " None is: by chance alone some come first."
    note = (
        "At the guard's own threshold. Marked: rejected more often than the rest of its set, beyond chance (Fisher's "
        f"exact test, Holm, 1 %).{none}"
    )
    return "\n".join([*parts, f'<p class="soft">{note}</p>']) if parts else "<p>One class, one folder.</p>"


def _table(what: str, crowd: Crowd, groups: Sequence[Group], root: str) -> str:
    rows = [
        [
            (group.name.removeprefix(root) or group.name or "."),
            f"{group.images:,}",
            f"{group.rejected:,}",
            f"{100 * group.rejected / group.images:.1f} %",
            "stands out" if group.stands_out else "",
        ]
        for group in groups[:ROWS]
    ]
    rest = f'<p class="soft">and {len(groups) - ROWS:,} more</p>' if len(groups) > ROWS else ""
    return html_table([what, "images", "rejected", "share", "marked"], rows, f"{crowd.name} by {what}") + rest
