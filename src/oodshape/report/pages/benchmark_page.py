"""One HTML page with all results: it needs no network and no other file, and suits light, dark and small screens.

The words at the top and the provenance are written here; tables and figures are drawn by the scripts in `web` from
JSON that stands in the page, so that they follow the reader's filters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from oodshape.benchmark.results import Results
from oodshape.metrics.registry import DEFAULT_METRICS, MAIN, METRICS
from oodshape.report.pages.benchmark_data import curves, payload
from oodshape.report.pages.html import document, html_table, page_json, web_file, write_html
from oodshape.report.tables.summary import BEST_HEAD, best_methods, summarize
from oodshape.report.tables.table import DEFAULT_COLUMNS, Column, Table, caveats, skipped_notes, table

SCRIPTS = ("elements.js", "data.js", "filters.js", "table.js", "charts.js", "enlarge.js", "state.js", "page.js")


def write_page(results: Results, path: str | Path, columns: tuple[Column, ...] = DEFAULT_COLUMNS) -> None:
    """Write the page of these results atomically; its table shows these columns at first."""
    write_html(path, page(results, columns))


def page(results: Results, columns: tuple[Column, ...] = DEFAULT_COLUMNS) -> str:
    """The page's HTML."""
    overview = table(results, "model")
    parts = {
        "title": escape(overview.title),
        "reading": escape(" ".join(metric.note for metric in DEFAULT_METRICS)),
        "main": escape(MAIN.head),
        "metrics": "".join(f"<li>{escape(metric.note)}</li>" for metric in METRICS.values()),
        "verdict": "\n".join(f"<p>{escape(line)}</p>" for line in summarize(results)),
        "answers": html_table(BEST_HEAD, best_methods(overview), "The best methods of each network"),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in _notes(results, overview)),
        "caveat": _caveat(results),
        "skipped": _skipped(results),
        "origin": _facts(results.provenance),
        "data": page_json(payload(results, columns)),
    }
    body = re.sub(r"\{\{(\w+)\}\}", lambda found: parts[found[1]], web_file("page.html").rstrip())
    # behind the script, which draws the table before these have come
    later = "".join(
        f'<script type="application/json" id="curves-{place}">{page_json(each)}</script>\n'
        for place, each in enumerate(curves(results))
        if each
    )
    return document(overview.title, body, "\n".join(map(web_file, SCRIPTS)), web_file("page_wide.css"), later)


def _notes(results: Results, overview: Table) -> list[str]:
    """What a reader must know before comparing; what was left out is told elsewhere."""
    incomplete = any(entry.mark or not entry.over for line in overview.lines for entry in line.entries)
    return [note for note in caveats(results, incomplete) if note not in skipped_notes(results)]


def _caveat(results: Results) -> str:
    """That only a part of the images was used, where that is so."""
    limit = results.provenance.get("settings", {}).get("limit")
    return (
        f"<p><b>Only a subset was used</b>: at most {escape(str(limit))} images of each set.</p>"
        if limit is not None
        else ""
    )


def _skipped(results: Results) -> str:
    """What was not measured, by name, and the reasons for who opens the list."""
    left_out = [*results.skipped, *((f"{each.method} on {each.model}", each.why) for each in results.failed)]
    if not left_out:
        return ""
    names = escape(", ".join(what for what, _ in left_out))
    reasons = "".join(f"<li>{escape(what)}: {escape(why)}</li>" for what, why in left_out)
    return f'<details class="notes"><summary>Not measured: {names}</summary><ul>{reasons}</ul></details>'


def _facts(facts: Mapping[str, Any]) -> str:
    """A list of names and values, in which long lists can be opened."""
    parts = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            count = "1 entry" if len(value) == 1 else f"{len(value)} entries"
            inner = f"<details><summary>{count}</summary>{_facts(value)}</details>" if value else "none"
        else:
            inner = escape(str(value))
        parts.append(f"<dt>{escape(name)}</dt><dd>{inner}</dd>")
    return f"<dl>{''.join(parts)}</dl>"
