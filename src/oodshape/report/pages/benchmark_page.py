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
from oodshape.metrics.registry import DEFAULT_METRICS, ERROR, MAIN, METRICS, Metric
from oodshape.report.method_styles import CHOICE, family
from oodshape.report.pages.benchmark_data import curves, payload
from oodshape.report.pages.html import document, html_table, page_json, web_file, write_html
from oodshape.report.tables.table import DEFAULT_COLUMNS, Cell, Column, Entry, Table, caveats, skipped_notes, table

SCRIPTS = ("elements.js", "data.js", "filters.js", "table.js", "charts.js", "enlarge.js", "state.js", "page.js")
NAMED = 3  # of the methods tied with the best, where these are many
BEST_HEAD = ("network", "best", "tied with it", MAIN.head, ERROR.head, f"best {ERROR.head}", "auto")


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
    if not results.skipped:
        return ""
    names = escape(", ".join(what for what, _ in results.skipped))
    reasons = "".join(f"<li>{escape(what)}: {escape(why)}</li>" for what, why in results.skipped)
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


def best_methods(overview: Table) -> list[list[str]]:
    """The rows below `BEST_HEAD`, one per column group of a table by model; methods that lack an OOD set are left out.

    `auto` is the method that chooses without OOD data.
    """
    rows = []
    for place, network in enumerate(overview.groups):
        entries = {line.method: line.entries[place] for line in overview.lines if _cell(line.entries[place], MAIN).rank}
        best = [name for name, entry in entries.items() if _cell(entry, MAIN).rank == 1]
        tied = [name for name, entry in entries.items() if entry.tied and name not in best]
        few = tied if len(tied) <= NAMED + 1 else [*tied[:NAMED], f"{len(tied) - NAMED} others"]
        fewest = [name for name, entry in entries.items() if _cell(entry, ERROR).rank == 1]
        numbers = [_cell(entries[best[0]], metric).text for metric in (MAIN, ERROR)]
        lowest = f"{_cell(entries[fewest[0]], ERROR).text} ({', '.join(fewest)})"
        auto = [_cell(entry, MAIN).text for name, entry in entries.items() if family(name) == CHOICE]
        rows.append([network, ", ".join(best), ", ".join(few), *numbers, lowest, ", ".join(auto)])
    return rows


def _cell(entry: Entry, metric: Metric) -> Cell:
    return entry.cells[DEFAULT_METRICS.index(metric)]
