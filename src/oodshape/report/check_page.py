"""A check as a table for the terminal and as a page."""

from __future__ import annotations

from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oodshape.guard.check import SAME, Check, SetCheck
from oodshape.metrics.separation import Estimate
from oodshape.report.html import html_table, plain_page, write_html
from oodshape.report.measures import SHOWN

HEAD = ["set", "detector", "images", "accepted", *(measure.title for measure in SHOWN)]
NOTE = (
    "In brackets: 95 % intervals, exact (Clopper-Pearson) for shares, bootstrap for FPR95 and AUROC. FPR95: the share "
    "of OOD images that pass when 95 % of the ID images pass. AUROC: the chance that an ID image scores higher."
)
BINS = 40
WIDTH, HEIGHT, FOOT = 640, 200, 24


def check_rows(check: Check) -> list[list[str]]:
    """The cells of the table below `HEAD`: each set under the guard, then under a threshold on the softmax."""
    rows = []
    by_set: dict[str, list[list[str]]] = {}
    for row in check.rows():
        cells = [f"{row['set']} ({row['role'].upper()})", row["detector"], f"{row['images']:,}"]
        cells.append(_percent(Estimate(**row["accepted_share"])))
        cells += [_percent(Estimate(**row[each.name])) if each.name in row else "" for each in SHOWN]
        by_set.setdefault(cells[0], []).append(cells)
    for group in by_set.values():
        rows += group
    return rows


def verdict(check: Check) -> str:
    """Whether the promise holds on the ID images, in a sentence."""
    images, alpha = len(check.inside.guard.values), check.guard.detector.alpha or 0.0
    said = f"{check.rejected:,} of {images:,} ID images are rejected; {100 * alpha:g} % were asked for"
    if check.promised is None:
        return f"{said} ({check.guard.promise})" if not check.guard.about.held_out else f"{said}, per class"
    if check.known > SAME:
        return f"{said}; that proves nothing: these are the images that set the threshold"
    low, high = check.promised
    holds = low <= check.rejected <= high
    end = "as promised" if holds else "not as promised: these images are unlike those it was calibrated on"
    return f"{said}; the promise puts the number between {low:,} and {high:,} (99 %): {end}"


def write_check(check: Check, path: str | Path) -> None:
    """Write the page of a check."""
    sides = [_histogram(check, each) for each in check.outside]
    body = [
        f"<p>{escape(verdict(check))}.</p>",
        html_table(HEAD, check_rows(check)),
        f'<p class="soft">{escape(NOTE)} The softmax threshold was calibrated on the same images for the same share of '
        "falsely rejected ones.</p>",
        *sides,
    ]
    if check.unreadable:
        lines = [[file, why] for file, why in check.unreadable.items()]
        body.append(f"<h2>Not readable: {len(lines)}</h2>\n{html_table(['file', 'why'], lines[:100])}")
    write_html(path, plain_page("Check of a guard", "\n".join(body)))


def _percent(value: Estimate) -> str:
    return f"{100 * value.value:.1f} % [{100 * value.low:.1f}, {100 * value.high:.1f}]"


def _histogram(check: Check, outside: SetCheck) -> str:
    """The scores of the ID set and of an OOD set, and the threshold, as a drawing."""
    inside, other, limit = check.inside.guard.values, outside.guard.values, check.guard.detector.threshold
    low, high = np.quantile(np.concatenate([inside, other]), [0.002, 0.998])
    low, high = float(min(low, limit)), float(max(high, limit))
    edges = np.linspace(low, high if high > low else low + 1, BINS + 1)
    counts = [np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0] / len(values) for values in (inside, other)]
    top = max(float(np.max(part)) for part in counts)
    bars = "".join(_bars(part / top, color) for part, color in zip(counts, ("var(--id)", "var(--ood)"), strict=True))
    place = WIDTH * (limit - edges[0]) / (edges[-1] - edges[0])
    foot = HEIGHT + 0.75 * FOOT
    return (
        f"<h2>{escape(outside.name)}</h2>\n<figure>"
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT + FOOT}" width="{WIDTH}" role="img" aria-label="histogram of scores">{bars}'
        f'<line x1="{place:.1f}" x2="{place:.1f}" y1="0" y2="{HEIGHT}" stroke="currentColor" stroke-dasharray="4 3"/>'
        f'<line x1="0" x2="{WIDTH}" y1="{HEIGHT}" y2="{HEIGHT}" stroke="currentColor" stroke-opacity=".4"/>'
        f'<text x="0" y="{foot}" font-size="12" fill="currentColor">{edges[0]:.3g}</text>'
        f'<text x="{WIDTH}" y="{foot}" font-size="12" text-anchor="end" fill="currentColor">{edges[-1]:.3g}</text>'
        "</svg>"
        f'<figcaption>Scores of <b style="color:var(--id)">{escape(check.inside.name)}</b> (ID) and '
        f'<b style="color:var(--ood)">{escape(outside.name)}</b> (OOD), as shares of each set; images left of the '
        "dashed line are rejected.</figcaption></figure>"
    )


def _bars(heights: NDArray[np.float64], color: str) -> str:
    wide = WIDTH / BINS
    return "".join(
        f'<rect x="{place * wide:.1f}" y="{HEIGHT * (1 - height):.1f}" width="{wide:.1f}" '
        f'height="{HEIGHT * height:.1f}" fill="{color}" fill-opacity=".55"/>'
        for place, height in enumerate(heights)
        if height > 0
    )
