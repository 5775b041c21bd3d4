"""One HTML page with all results: it needs no network and no other file, and suits light, dark and small screens.

The words at the top and the provenance are written here; tables and figures are drawn by the scripts in `web` from
JSON that stands in the page, so that they follow the reader's filters.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from oodshape.benchmark.results import Results
from oodshape.core.text import join_names
from oodshape.report.pages.benchmark_data import curves, payload
from oodshape.report.pages.html import document, page_json, web_file, write_html
from oodshape.report.tables.summary import ERRORS, Answer, Mean, answers, summarize
from oodshape.report.tables.table import Table, caveats, skipped_notes, table

SCRIPTS = ("elements.js", "data.js", "filters.js", "table.js", "charts.js", "enlarge.js", "state.js", "page.js")

NAMED = 3  # of the methods tied with the best, where these are many
_READING = {
    "id": "<b>FPR95</b> is the share of unfamiliar images (out-of-distribution, OOD) that still pass when 95 % of the"
    " familiar ones (in-distribution, ID) pass: lower is better.",
    "ood": "<b>FPR95</b> is the share of familiar images (in-distribution, ID) that are rejected when 95 % of the"
    " unfamiliar ones (out-of-distribution, OOD) are: lower is better. This is OpenOOD's convention.",
}
_THRESHOLD = {
    "id": "What a method lets through is the mean FPR95: at a threshold that keeps 95 % of ID images.",
    "ood": "What a method rejects is the mean FPR95: at a threshold that rejects 95 % of OOD images.",
}


def write_page(results: Results, path: str | Path) -> None:
    """Write the page of these results, whole or not at all."""
    write_html(path, page(results))


def page(results: Results) -> str:
    """The page's HTML."""
    overview = table(results, "model")
    positive = str(results.provenance.get("positive", "id"))
    parts = {
        "title": escape(overview.title),
        "reading": _READING[positive],
        "lets": _THRESHOLD[positive],
        "verdict": "\n".join(f"<p>{escape(line)}</p>" for line in summarize(results)),
        "answers": "\n".join(_card(answer, ERRORS[positive]) for answer in answers(results)),
        "notes": "".join(f"<li>{escape(note)}</li>" for note in _notes(results, overview)),
        "caveat": _caveat(results),
        "skipped": _skipped(results),
        "origin": _facts(results.provenance),
        "data": page_json(payload(results)),
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


def _card(answer: Answer, errors: str) -> str:
    """A network's answers: the best method and its errors, `auto`, and the featured method."""

    def erring(mean: Mean) -> str:
        return errors.format("s", f"{100 * mean.fpr95:.2f}")

    best, auto, featured = answer.best, answer.auto, answer.featured
    family = f" <small>{escape(answer.family)}</small>" if answer.family != answer.model else ""
    lines = [
        f'<article class="card"><h3>{escape(answer.model)}{family}</h3>',
        f'<p class="big"><b>{escape(best.method)}</b> {_tied(answer.tied)}</p>',
        f"<p>AUROC <b>{100 * best.auroc:.2f}</b>; it <b>{erring(best)}</b>.</p>",
    ]
    if answer.lowest.fpr95 < best.fpr95:
        lines.append(f"<p>Lowest FPR95: <b>{escape(answer.lowest.method)}</b>; it {erring(answer.lowest)}.</p>")
    if auto is not None:
        said = f"<b>{escape(auto.method)}</b>, which chooses without OOD data: AUROC <b>{100 * auto.auroc:.2f}</b>; it"
        lines.append(f"<p>{'It chooses without OOD data.' if auto == best else f'{said} {erring(auto)}.'}</p>")
    if featured is not None and answer.worst is not None and answer.methods > 1:
        ours, other = answer.worst
        lines.append(
            f'<p class="soft"><b>{escape(featured.method)}</b> is number {featured.place} of {answer.methods}: AUROC'
            f" {100 * featured.auroc:.2f}; it {erring(featured)}."
        )
        lines.append(
            f" It loses most on <b>{escape(ours.ood)}</b>: AUROC {100 * ours.auroc:.2f} against"
            f" {100 * other.auroc:.2f} ({escape(other.method)}).</p>"
            if other.auroc > ours.auroc
            else " No method beats it on any OOD set.</p>"
        )
    return "".join([*lines, "</article>"])


def _tied(names: Sequence[str]) -> str:
    """That a method is the best, or with whom it shares that.

    >>> _tied([]), _tied(["vim", "knn"]), _tied(["a", "b", "c", "d", "e"])
    ('is best', 'is tied with vim and knn', 'is tied with a, b, c and 2 others')
    """
    few = list(names) if len(names) <= NAMED + 1 else [*names[:NAMED], f"{len(names) - NAMED} others"]
    return f"is tied with {escape(join_names(few))}" if few else "is best"


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
