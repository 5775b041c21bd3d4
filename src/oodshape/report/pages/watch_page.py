"""Render the page of a watch: the decision, four numbers, the rates over time with their limits, events."""

from __future__ import annotations

import csv
import math
import os
from collections.abc import Iterable, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.core.text import format_rate
from oodshape.guard.scoring.score_formats import ScoreRow
from oodshape.guard.watch.history import BINS, History
from oodshape.guard.watch.watch import MIDDLE, Watch
from oodshape.images.decode.preprocessing import make_thumbnail
from oodshape.images.decode.read import open_image
from oodshape.images.sources.storage import is_remote
from oodshape.report.pages.html import banner, fill_template, page_json, tiles, write_page

SCRIPTS = ("elements.js", "watch.js")
POINTS = 60  # of a curve, where the history has more
SMALLEST = 48  # images of a point: rates of fewer jump
RECENT = 10  # points that the recent rate is of
PICTURES, SIDE = 48, 96  # rejected images that are shown, at most, and their longer side in pixels
STEPS = (
    "If they are OOD, the guard works: find their source.",
    "If they are valid inputs, recalibrate on recent valid images, accepted and rejected alike: "
    "<code>oodshape calibrate GUARD --images RECENT</code>, then <code>oodshape watch --reset</code>. "
    "A calibration set of rejected images alone would make the guard accept almost everything.",
)


def write_watch_page(watch: Watch, path: str | Path, rejected: Iterable[tuple[int, ScoreRow]] = ()) -> Path | None:
    """Write the page of a watch, and next to it the list of what was `rejected` since the change; return the list."""
    history, test = watch.history, watch.rejection
    listed = Path(path).with_name(f"{Path(path).stem}-rejected.csv")
    count, shown = _write_list(listed, rejected)
    top = _decision(watch, listed.name if count else "")
    sections: dict[str, tuple[str, str]] = {}
    data: dict[str, Any] = {"charts": []}
    if history.seen:
        sizes, counts, low = _points(history)
        top += "\n" + tiles(_numbers(watch, int(sizes[-RECENT:].sum()), int(counts[-RECENT:].sum())))
        events = [{"kind": each.kind, "image": each.image, "began": each.began} for each in history.events]
        data |= {"sizes": sizes.tolist(), "events": events}
        for name, head, what, hits, allowed in (
            ("rate", "Rejection rate", "rejected", counts, test.allowed),
            ("low", "Low p-values", f"p up to {MIDDLE:g}", low, watch.middle.allowed),
        ):
            data["charts"].append({"id": f"{name}-chart", "what": what, "counts": hits.tolist(), "allowed": allowed})
            note = f"{int(sizes[0]):,} images per point; shaded, allowed: up to {format_rate(allowed)}"
            note += "; dotted: estimated start of the change" if history.events else ""
            sections[name] = head, f'<figure><div id="{name}-chart"></div><figcaption>{note}</figcaption></figure>'
    if count:
        sections["rejected"] = "Rejected since the change", _pictures(shown, count)
    sub = f"{history.seen:,} images · target false rejection rate {100 * watch.alpha:g} % · "
    sub += f"{watch.n_calibration:,} calibration images"
    body = fill_template("watch.html", {"sub": sub, "top": top, "data": page_json(data)}, sections)
    write_page(path, "Watch", body, SCRIPTS, "scored.css")
    return listed if count else None


def _numbers(watch: Watch, recent: int, out: int) -> list[tuple[str, str, str]]:
    """The tiles; `recent` are the latest images, `out` those of them that are rejected."""
    history, test, evidence = watch.history, watch.rejection, max(watch.rejection.highest, watch.middle.highest)
    power = f"{math.exp(evidence):,.0f}" if evidence < math.log(1e6) else "over a million"
    lost = history.unreadable.sum()
    return [
        (f"rejection rate, last {recent:,}", format_rate(out / recent), f"allowed up to {format_rate(test.allowed)}"),
        ("rejected", f"{history.rejected.sum():,}", f"of {history.seen:,} images"),
        ("evidence against the guarantee", power, f"the alarm needs {1 / test.delta:.0f}"),
        ("unreadable", f"{lost:,}", f"of {history.seen + lost:,}"),
    ]


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
            picture = f'<img src="{make_thumbnail(open_image(_place(row), upright=True), SIDE)}" alt="">'
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
            f"Watch: {format_rate(test.rate)} rejected, more than the target of {format_rate(watch.alpha)}",
            f"Up to {format_rate(test.allowed)} is within sampling error for {watch.n_calibration:,} calibration "
            "images, so there is no alarm yet. Look at the rejected images, or calibrate with more images.",
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
