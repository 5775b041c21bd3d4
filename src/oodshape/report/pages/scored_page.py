"""The page of scored images, of `score` and of `check`: what is accepted, at which threshold, and why. One file."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from oodshape.core.text import counted
from oodshape.guard.describe import lines
from oodshape.guard.fitted import Fitted
from oodshape.guard.verdict import Scored
from oodshape.methods.detector import Detector
from oodshape.metrics.conformal import rejected_count
from oodshape.networks.loading import Source
from oodshape.report.pages.html import document, html_table, page_json, web_file, write_html
from oodshape.report.pages.scored_data import SHOWN, Images, describe_images, payload
from oodshape.report.pages.scored_set import ScoredSet, ShownImage, group_tables

BROKEN = 100  # unreadable images that are named
SCRIPTS = ("elements.js", "groups.js", "scored.js")
_AXIS = (
    "All panels have one axis, and both of its ends hold what lies beyond them. Reading a threshold off the strange "
    "images shown here and using it would be tuning on the test: the promise holds for an alpha that was chosen before."
)


@dataclass(frozen=True)
class Origin:
    """Where a page comes from, as far as who writes it knows."""

    command: str = ""
    guard: str = ""  # its file


def render_scored_page(
    title: str,
    verdict: Sequence[str],
    guard: Fitted,
    sets: Sequence[ScoredSet],
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
        "shown": escape(_shown(sets, len(data["items"]))),
        "groups": group_tables(sets),
        "links": "".join(f'<a href="#{name}">{head}</a> ' for name, (head, _) in more.items()),
        "more": "\n".join(sections),
        "origin": _described(guard),
        "data": page_json(data),
    }
    body = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], web_file("scored.html").rstrip())
    return document(title, body, "\n".join(map(web_file, SCRIPTS)), web_file("scored.css"))


def _facts(guard: Fitted, origin: Origin) -> str:
    """Network, guard, method, date, command."""
    about = guard.about
    weights = f" with {Path(about.weights).name}" if about.weights else ""
    method = dict(lines(guard)).get("method", about.method)
    told = {
        "network": f"{about.model or 'given in Python'}{weights} ({about.network})",
        "guard": Path(origin.guard).name or "in memory",
        "method": method,
        "guarantee": guard.guarantee,
        "sanity": guard.sanity,
        "date": date.today().isoformat(),
        "command": origin.command,
    }
    rows = (f"<dt>{name}</dt><dd>{escape(str(value))}</dd>" for name, value in told.items() if value)
    return f"<dl>{''.join(rows)}</dl>"


def _described(guard: Fitted) -> str:
    rows = (f"<dt>{escape(str(what))}</dt><dd>{escape(str(value))}</dd>" for what, value in lines(guard))
    return f"<dl>{''.join(rows)}</dl>"


def _shown(sets: Sequence[ScoredSet], items: int) -> str:
    total = sum(map(len, sets))
    if items == total:
        first = "" if all(scored.role == "new" for scored in sets) else ", mistakes first"
        return f"All {counted(total, 'image')}, sorted by p-value{first}." if total > 1 else ""
    return (
        f"A sample: {items:,} of {total:,} images. Of each set those with the lowest p-values, those with the highest, "
        "and some of all; every figure above and below counts all images."
    )


class ScoredRows:
    """Rows of `score` as they go by, in memory that does not follow their size."""

    def __init__(self, guard: Fitted, name: str) -> None:
        """None yet."""
        self.scored = ScoredSet(name, "new", SHOWN, alpha=guard.detector.alpha or 0.0)
        self.broken: list[tuple[str, str]] = []
        self.unreadable = self._seen = 0

    def add(self, row: Scored) -> None:
        """Look at one more row."""
        number, self._seen = self._seen, self._seen + 1
        if row.score is None or row.p_value is None:
            self.unreadable += 1
            if len(self.broken) < BROKEN:
                self.broken.append((row.path, row.error))
            return
        self.scored.add(ShownImage(row.p_value, row.score, (row.path, number), str(row.label), ""))


def write_scored(
    guard: Fitted, source: Source, images: Images, seen: ScoredRows, path: str | Path, origin: Origin
) -> None:
    """Write the page; `images` are read again for those that it shows."""
    scored = seen.scored
    more = {}
    if seen.unreadable:
        table = html_table(["file", "why"], seen.broken, "Not readable")
        more["unreadable"] = (f"Not readable: {seen.unreadable:,}", table)
    items = describe_images(guard, source, [(scored, images)])
    title = f"{scored.name}: images scored by a guard of {guard.about.model or 'a network given in Python'}"
    data = payload(guard, [scored] if len(scored) else [], items) | {"risk": None}
    write_html(path, render_scored_page(title, _verdict(scored, guard.detector), guard, [scored], data, origin, more))


def _verdict(scored: ScoredSet, detector: Detector) -> list[str]:
    """How many are rejected, and whether familiar images would be, the luck of the calibration included."""
    if not len(scored):
        return ["<b>No image could be read.</b>"]
    out = sum(p_value <= scored.alpha for p_value in scored.p_values)
    share = 100 * out / len(scored)
    at = f"At the guard's own alpha of {100 * scored.alpha:g} %,"
    said = f"{at} {out:,} of {counted(len(scored), 'image')} {'is' if out == 1 else 'are'} rejected ({share:.1f} %)."
    calibrated = len(detector.calibration) if detector.calibration is not None else 0
    few, many = rejected_count(calibrated, scored.alpha, len(scored))
    few = few if detector.groups is None else 0  # small classes reject less than alpha
    asked = f"Of so many familiar ones {few:,} to {many:,} would be (99 times in 100; {calibrated:,} calibrated it)"
    if out > many:
        end = f"{asked}: these are more than chance explains, so some are strange, or the images have changed."
    elif out < few:
        end = f"{asked}: these are fewer, so the images are more ordinary than those it was calibrated on."
    else:
        end = f"{asked}: by their number, these may all be familiar."
    return [f"<b>{escape(said)}</b>", escape(end)]
