"""Render the page of a watch: evidence, acceptance rate and p-values over time, unreadable images, classes, alarms."""

from __future__ import annotations

import math
from collections.abc import Mapping
from html import escape
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oodshape.guard.watch.history import BINS, Event, History
from oodshape.guard.watch.watch import Watch
from oodshape.report.pages.html import html_table, plain_page, write_html

WIDTH, HEIGHT, LEFT, TOP, FOOT = 720, 120, 56, 10, 22
CLASSES = 200  # rows of the table


def write_watch(watch: Watch, path: str | Path) -> None:
    """Write the page of a watch."""
    history = watch.history
    summary = "".join(f"<p>{escape(line)}</p>\n" for line in str(watch).splitlines())
    body = [summary]
    if history.seen:
        body += [_events(history), _acceptance(watch), _evidence(watch), _p_values(history), _unreadable(history)]
    body.append(_classes(history))
    write_html(path, plain_page("Watch of a guard", "\n".join(part for part in body if part)))


def _events(history: History) -> str:
    """Return the table of alarms and resets."""
    rows = []
    for event in history.events:
        began = f"the change began near image {event.began:,}" if event.began is not None else ""
        rows.append([f"{event.image:,}", event.kind, began])
    return html_table(["image", "what", ""], rows) if rows else ""


class _Frame:
    """A figure: readable images on the x-axis, a fraction of the height on the y-axis."""

    def __init__(self, history: History) -> None:
        self.history, self.total = history, history.seen
        self.ends = np.cumsum(history.sizes)
        self.starts = self.ends - history.sizes

    def x(self, image: float) -> float:
        return LEFT + (WIDTH - LEFT) * image / max(self.total, 1)

    def svg(self, label: str, inside: str, ticks: Mapping[float, str], caption: str) -> str:
        """Return the figure with its axes, alarms, resets and caption."""
        lines = "".join(
            f'<line x1="{LEFT}" x2="{WIDTH}" y1="{_y(at):.1f}" y2="{_y(at):.1f}" stroke="var(--line)"/>'
            f'<text x="{LEFT - 6}" y="{_y(at) + 4:.1f}" font-size="12" text-anchor="end" fill="currentColor">'
            f"{text}</text>"
            for at, text in ticks.items()
        )
        foot = HEIGHT + 0.75 * FOOT
        ends = (
            f'<text x="{LEFT}" y="{foot}" font-size="12" fill="currentColor">0</text>'
            f'<text x="{WIDTH}" y="{foot}" font-size="12" text-anchor="end" fill="currentColor">'
            f"{self.total:,} images</text>"
        )
        marks = "".join(self._mark(event) for event in self.history.events)
        return (
            f'<figure><svg viewBox="0 {-TOP} {WIDTH} {HEIGHT + TOP + FOOT}" width="{WIDTH}" role="img" '
            f'aria-label="{escape(label)}">{lines}{inside}{marks}{ends}</svg><figcaption>{caption}</figcaption></figure>'
        )

    def _mark(self, event: Event) -> str:
        color, dash = ("var(--wrong)", "") if event.kind == "alarm" else ("currentColor", ' stroke-dasharray="4 3"')
        return _upright(self.x(event.image), color, dash) + (
            "" if event.began is None else _upright(self.x(event.began), color, ' stroke-dasharray="2 3"')
        )

    def steps(self, values: NDArray[np.float64], color: str) -> str:
        """Return a line with one level per block."""
        points = [
            f"{self.x(x):.1f},{_y(min(max(float(value), 0.0), 1.0)):.1f}"
            for start, end, value in zip(self.starts, self.ends, values, strict=True)
            for x in (start, end)
        ]
        return f'<polyline points="{" ".join(points)}" fill="none" stroke="{color}" stroke-width="1.8"/>'


def _upright(x: float, color: str, dash: str) -> str:
    return f'<line x1="{x:.1f}" x2="{x:.1f}" y1="0" y2="{HEIGHT}" stroke="{color}" stroke-width="1.5"{dash}/>'


def _y(share: float) -> float:
    return HEIGHT * (1 - share)


def _acceptance(watch: Watch) -> str:
    """Draw the acceptance rate, from a lower limit below all values to 1."""
    frame, history = _Frame(watch.history), watch.history
    accepted = 1 - history.rejected / np.maximum(history.sizes, 1)
    floor = min(float(accepted.min()), 1 - watch.rejection.allowed)
    floor = max(0.0, math.floor(10 * (floor - 0.02)) / 10)

    def at(share: float) -> float:
        return (share - floor) / (1 - floor)

    ticks = {0.0: f"{floor:.0%}", at(1 - watch.alpha): f"{1 - watch.alpha:.1%}", 1.0: "100%"}
    inside = frame.steps(np.array([at(share) for share in accepted]), "var(--id)")
    return frame.svg(
        "acceptance rate over time",
        inside,
        ticks,
        f"Acceptance rate per {history.block:,} images; {1 - watch.alpha:.1%} is expected of ID images, and down to "
        f"{1 - watch.rejection.allowed:.1%} is within the sampling error of the calibration. Red: an alarm (dotted: "
        "the estimated start of the change); dashed: a reset.",
    )


def _evidence(watch: Watch) -> str:
    """Draw both tests on a logarithmic scale, up to a little above the alarm."""
    frame, history = _Frame(watch.history), watch.history
    limit = -math.log(watch.rejection.delta)
    top = 1.5 * limit  # larger values are clipped
    ticks = {0.0: "1", limit / top: f"{math.exp(limit):.0f}"}
    inside = frame.steps(history.evidence[:, 0] / top, "var(--ood)")
    inside += frame.steps(history.evidence[:, 1] / top, "var(--shaping)")
    return frame.svg(
        "evidence over time",
        inside,
        ticks,
        'Evidence against the guarantee, the highest so far: <b style="color:var(--ood)">by rejections</b>, '
        f'<b style="color:var(--shaping)">by all p-values</b>; an alarm is raised at {math.exp(limit):.0f}.',
    )


def _p_values(history: History) -> str:
    """Draw the histogram of the p-values of each block; an even tint is like the calibration set."""
    frame = _Frame(history)
    shares = history.p_values / np.maximum(history.sizes, 1)[:, None]
    tall = HEIGHT / BINS
    cells = "".join(
        f'<rect x="{frame.x(start):.1f}" y="{_y((place + 1) / BINS):.1f}" width="{frame.x(end) - frame.x(start):.2f}" '
        f'height="{tall:.2f}" fill="var(--ood)" fill-opacity="{min(share * BINS / 4, 1):.2f}"/>'
        for start, end, row in zip(frame.starts, frame.ends, shares, strict=True)
        for place, share in enumerate(row)
        if share > 0
    )
    return frame.svg(
        "p-values over time",
        cells,
        {0.0: "0", 0.5: "0.5", 1.0: "1"},
        f"Histograms of p-values per {history.block:,} images, from 0 (bottom) to 1 (top). An even tint: like the "
        "calibration set. Dark at the bottom: scores have dropped.",
    )


def _unreadable(history: History) -> str:
    if not history.unreadable.any():
        return ""
    frame = _Frame(history)
    share = history.unreadable / np.maximum(history.sizes + history.unreadable, 1)
    top = float(share.max())
    ticks = {0.0: "0", 1.0: f"{top:.1%}"}
    caption = f"Unreadable images, {int(history.unreadable.sum()):,} in all, as a fraction of each block."
    return frame.svg("unreadable images over time", frame.steps(share / top, "var(--soft)"), ticks, caption)


def _classes(history: History) -> str:
    """Return the table of classes, the highest rejection rate first."""
    if history.classes is None:
        return ""
    counts = dict(zip(history.names, history.classes.tolist(), strict=True))
    order = sorted(counts, key=lambda name: (-counts[name][1] / max(sum(counts[name]), 1), name))
    rows = [
        [name, f"{sum(counts[name]):,}", f"{counts[name][1]:,}", f"{counts[name][1] / max(sum(counts[name]), 1):.1%}"]
        for name in order[:CLASSES]
    ]
    more = f"<p>{len(order) - CLASSES:,} more classes are not shown.</p>" if len(order) > CLASSES else ""
    return f"<h2>By class</h2>\n{html_table(['class', 'images', 'rejected', 'share'], rows)}{more}"
