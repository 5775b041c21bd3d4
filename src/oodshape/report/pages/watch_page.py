"""Render the page of a watch: the decision, four numbers, the rates over time with their limits, events, classes."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Sequence
from html import escape
from itertools import chain
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.guard.scoring.score_formats import ScoreRow
from oodshape.guard.watch.history import BINS, Event, History
from oodshape.guard.watch.watch import MIDDLE, Watch
from oodshape.images.decode.read import open_image
from oodshape.images.decode.thumbnail import thumbnail
from oodshape.images.sources.storage import is_remote
from oodshape.report.pages.html import banner, document, html_table, section, tiles, web_file, write_html

WIDTH, HEIGHT, LEFT, TOP, FOOT = 960, 210, 64, 26, 44
POINTS = 60  # of a curve, where the history has more
SMALLEST = 48  # images of a point: rates of fewer jump
RECENT = 10  # points that the recent rate is of
CLASSES = 200  # rows of the table
FEW = 10  # a class of fewer images has no rate
PICTURES, SIDE = 48, 96  # rejected images that are shown, at most, and their longer side in pixels
STEPS = (
    "If they are OOD, the guard works: find their source.",
    "If they are valid inputs, recalibrate on recent valid images, accepted and rejected alike: "
    "<code>oodshape calibrate GUARD --images RECENT</code>, then <code>oodshape watch --reset</code>. "
    "A calibration set of rejected images alone would make the guard accept almost everything.",
)


def write_watch(watch: Watch, path: str | Path, rejected: Iterable[tuple[int, ScoreRow]] = ()) -> Path | None:
    """Write the page of a watch, and next to it the list of what was `rejected` since the change; return the list."""
    history, test = watch.history, watch.rejection
    listed = Path(path).with_name(f"{Path(path).stem}-rejected.csv")
    count, shown = _write_list(listed, rejected)
    body = [
        "<h1>Watch</h1>",
        f'<p class="soft">{history.seen:,} images · target false rejection rate {100 * watch.alpha:g} % · '
        f"{watch.n_calibration:,} calibration images</p>",
        _decision(watch, listed.name if count else ""),
    ]
    if history.seen:
        sizes, counts, low = _points(history)
        recent, out = sizes[-RECENT:].sum(), counts[-RECENT:].sum()
        evidence = max(watch.rejection.highest, watch.middle.highest)
        body += [
            tiles(
                [
                    (
                        f"rejection rate, last {recent:,}",
                        _percent(out / recent),
                        f"allowed up to {_percent(test.allowed)}",
                    ),
                    ("rejected", f"{history.rejected.sum():,}", f"of {history.seen:,} images"),
                    (
                        "evidence against the guarantee",
                        f"{math.exp(evidence):,.0f}" if evidence < math.log(1e6) else "over a million",
                        f"alarm at {1 / test.delta:.0f}",
                    ),
                    ("unreadable", f"{history.unreadable.sum():,}", f"of {history.seen + history.unreadable.sum():,}"),
                ]
            ),
            section("rate", "Rejection rate", _chart(history, sizes, counts, test.allowed, "rejected")),
            section("low", "Low p-values", _chart(history, sizes, low, watch.middle.allowed, f"p up to {MIDDLE:g}")),
        ]
    if count:
        body.append(section("rejected", "Rejected since the change", _pictures(shown, count)))
    body += [_events(history), _classes(history)]
    text = "\n".join(part for part in body if part)
    write_html(path, document("Watch", f'<main id="main">\n{text}\n</main>', style=web_file("scored.css")))
    return listed if count else None


def _write_list(path: Path, rejected: Iterable[tuple[int, ScoreRow]]) -> tuple[int, list[tuple[int, ScoreRow]]]:
    """Write a list that any command takes as images; return its length, and rows to show, evenly spread."""
    first = next(rows := iter(rejected), None)
    if first is None:
        return 0, []
    shown, count, step = list[tuple[int, ScoreRow]](), 0, 1
    with (
        replacing(path) as temporary,
        open(temporary, "w", encoding="utf-8", errors="surrogateescape", newline="") as file,
    ):
        table = csv.writer(file, lineterminator="\n")
        table.writerow(["path", "image", "p_value", "class"])
        for image, row in chain([first], rows):
            table.writerow([_place(row), image, row.p_value, row.label])
            if count % step == 0:
                shown.append((image, row))
            if len(shown) > PICTURES:
                shown, step = shown[::2], 2 * step
            count += 1
    return count, shown


def _place(row: ScoreRow) -> str:
    """The path of an image from anywhere: a list's paths are relative to the list."""
    path = str(row.cells.get("path") or "")
    return path if not path or is_remote(path) else os.path.abspath(path)


def _pictures(shown: Sequence[tuple[int, ScoreRow]], count: int) -> str:
    """Return the images, in the order of the stream."""
    parts = []
    for image, row in shown:
        try:
            picture = f'<img src="{thumbnail(open_image(_place(row), upright=True), SIDE)}" alt="">'
        except InputError:
            picture = '<span class="gone">image not found</span>'
        words = f"{escape(row.label)}<small>#{image:,}</small><small>p = {row.p_value:.2g}</small>"
        parts.append(f'<li><figure class="item">{picture}<figcaption>{words}</figcaption></figure></li>')
    some = f"{len(parts)} of {count:,} rejected images, evenly spread" if len(parts) < count else f"{count:,} images"
    return f'<p class="soft">{some}, in the order of the stream.</p><ul class="wall">{"".join(parts)}</ul>'


def _decision(watch: Watch, listed: str) -> str:
    """Return the banner: OK, watch or ALARM, and what to do."""
    alarms = [event for event in watch.history.events if event.kind == "alarm"]
    if watch.alarm and alarms:
        last = alarms[-1]
        began = "" if last.began is None else f"; the change began near image {last.began:,}"
        where = f"below; all are in <code>{escape(listed)}</code>" if listed else "rows with accepted = false"
        look = f"Look at the images rejected since then ({where})."
        steps = "".join(f"<li>{step}</li>" for step in (look, *STEPS))
        return banner("bad", f"ALARM since image {last.image:,}{began}", f"<ol>{steps}</ol>")
    test = watch.rejection
    if not watch.seen:
        return banner("ok", "No images yet", "")
    if test.interval()[0] > watch.alpha:
        return banner(
            "warn",
            f"Watch: {_percent(test.rate)} rejected, more than the target of {_percent(watch.alpha)}",
            f"Up to {_percent(test.allowed)} is within sampling error for {watch.n_calibration:,} calibration images, "
            "so there is no alarm yet. Look at the rejected images, or calibrate with more images.",
        )
    return banner("ok", "OK: the stream agrees with the guarantee", "Nothing to do.")


def _points(history: History) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
    """Return the images of each point, those rejected, and those with a p-value up to 1/2."""
    together = max(-(-len(history.sizes) // POINTS), -(-SMALLEST // history.block))
    starts = np.arange(0, len(history.sizes), together)
    if len(starts) > 1 and 2 * history.sizes[starts[-1] :].sum() < history.sizes[: starts[1]].sum():
        starts = starts[:-1]  # a rate of few images would look like a change
    low = history.p_values[:, : round(BINS * MIDDLE)].sum(axis=1)
    sizes, rejected, low = (np.add.reduceat(each, starts) for each in (history.sizes, history.rejected, low))
    return sizes, rejected, low


def _chart(history: History, sizes: NDArray[np.int64], counts: NDArray[np.int64], allowed: float, what: str) -> str:
    """Draw the rate of each point above the last image it counts, the allowed band, alarms and resets."""
    rates = counts / np.maximum(sizes, 1)
    step = next(each for each in (0.01, 0.02, 0.05, 0.1, 0.2, 0.25) if 5 * each >= max(*rates, 1.3 * allowed, 0.05))
    top = step * math.ceil(float(max(*rates, 1.3 * allowed)) / step)

    def x(image: float) -> float:
        return LEFT + (WIDTH - LEFT - 20) * image / history.seen

    def y(rate: float) -> float:
        return HEIGHT * (1 - rate / top)

    def text(at: tuple[float, float], words: str, more: str = "") -> str:
        return f'<text x="{at[0]:.1f}" y="{at[1]:.1f}" {more}>{escape(words)}</text>'

    def upright(image: float, name: str) -> str:
        return f'<line class="{escape(name)}" x1="{x(image):.1f}" x2="{x(image):.1f}" y1="0" y2="{HEIGHT}"/>'

    def mark(event: Event) -> str:
        end = 'text-anchor="end"' if x(event.image) > WIDTH - 160 else ""
        at = (x(event.image) + (-5 if end else 5), -8)
        began = "" if event.began is None else upright(event.began, "hint")
        return began + upright(event.image, event.kind) + text(at, f"{event.kind} at image {event.image:,}", end)

    rows = [step * place for place in range(round(top / step) + 1)]
    wide, tall = WIDTH - LEFT - 20, HEIGHT - y(allowed)
    parts = [f'<rect class="band" x="{LEFT}" y="{y(allowed):.1f}" width="{wide}" height="{tall:.1f}"/>']
    for rate in rows:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDTH - 20}" y1="{y(rate):.1f}" y2="{y(rate):.1f}"/>')
        parts.append(text((LEFT - 8, y(rate) + 4), _percent(rate, 0), 'text-anchor="end"'))
    for quarter in range(5):
        parts.append(
            text(
                (x(history.seen * quarter / 4), HEIGHT + 18), f"{history.seen * quarter // 4:,}", 'text-anchor="middle"'
            )
        )
    parts += [mark(event) for event in history.events]
    points = " ".join(f"{x(end):.1f},{y(rate):.1f}" for end, rate in zip(np.cumsum(sizes), rates, strict=True))
    parts.append(f'<polyline class="rate" points="{points}"/>')
    parts.append(text(((LEFT + WIDTH) / 2, HEIGHT + 38), "images seen", 'text-anchor="middle"'))
    parts.append(f'<text transform="translate(14 {HEIGHT / 2}) rotate(-90)" text-anchor="middle">{what}</text>')
    label = escape(f"{what}: rate over time; allowed up to {_percent(allowed)}")
    note = f"{int(sizes[0]):,} images per point; shaded, allowed: up to {_percent(allowed)}"
    note += "; dotted: estimated start of the change" if history.events else ""
    return (
        f'<figure><div class="roll" tabindex="0" role="region" aria-label="{label}">'
        f'<svg class="watch" viewBox="0 {-TOP} {WIDTH} {HEIGHT + TOP + FOOT}" width="{WIDTH}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg></div><figcaption>{note}</figcaption></figure>'
    )


def _percent(rate: float, digits: int = 1) -> str:
    return f"{100 * rate:.{digits}f} %"


def _events(history: History) -> str:
    """Return the table of alarms and resets, where there are several."""
    rows = [
        [f"{event.image:,}", event.kind, "" if event.began is None else f"near image {event.began:,}"]
        for event in history.events
    ]
    return section("events", "Events", html_table(["image", "event", "change began"], rows)) if len(rows) > 1 else ""


def _classes(history: History) -> str:
    """Return the table of classes, the highest rejection rate first; small classes have no rate and come last."""
    if history.classes is None:
        return ""
    found = [(name, ok + out, out) for name, (ok, out) in zip(history.names, history.classes.tolist(), strict=True)]
    found.sort(key=lambda each: (each[1] < FEW, -each[2] / max(each[1], 1), each[0]))
    rows = [[name, f"{n:,}", f"{out:,}", _percent(out / n) if n >= FEW else "–"] for name, n, out in found[:CLASSES]]
    more = f"<p>{len(found) - CLASSES:,} more classes are not shown.</p>" if len(found) > CLASSES else ""
    return section(
        "classes", "Classes", html_table(["class", "images", "rejected", "rate"], rows, "Images by class") + more
    )
