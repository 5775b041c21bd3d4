"""Scored images as a page: how many are rejected, at which threshold, and why single ones are."""

from __future__ import annotations

from html import escape
from pathlib import Path

from oodshape.core.words import counted
from oodshape.guard.fitted import Fitted
from oodshape.guard.verdict import Scored
from oodshape.methods.detector import Detector
from oodshape.metrics.conformal import rejected_count
from oodshape.networks.opening import Source
from oodshape.report.crowd import Crowd, Face
from oodshape.report.html import html_table, write_html
from oodshape.report.judged_data import SHOWN, Images, payload, portraits
from oodshape.report.judged_page import Origin, judged_page

BROKEN = 100  # unreadable images that are named


class ScoredCrowd:
    """Rows of `score` as they go by, in memory that does not follow their size."""

    def __init__(self, guard: Fitted, name: str) -> None:
        """None yet."""
        self.crowd = Crowd(name, "new", SHOWN, alpha=guard.detector.alpha or 0.0)
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
        self.crowd.add(Face(row.p_value, row.score, (row.path, number), str(row.label), ""))


def write_scored(
    guard: Fitted, source: Source, images: Images, seen: ScoredCrowd, path: str | Path, origin: Origin
) -> None:
    """Write the page; `images` are read again for those that it shows."""
    crowd = seen.crowd
    more = {}
    if seen.unreadable:
        table = html_table(["file", "why"], seen.broken, "Not readable")
        more["unreadable"] = (f"Not readable: {seen.unreadable:,}", table)
    faces = portraits(guard, source, [(crowd, images)])
    title = f"{crowd.name}: images scored by a guard of {guard.about.model or 'a network given in Python'}"
    data = payload(guard, [crowd] if len(crowd) else [], faces) | {"risk": None}
    write_html(path, judged_page(title, _verdict(crowd, guard.detector), guard, [crowd], data, origin, more))


def _verdict(crowd: Crowd, detector: Detector) -> list[str]:
    """How many are rejected, and whether familiar images would be, the luck of the calibration included."""
    if not len(crowd):
        return ["<b>No image could be read.</b>"]
    out = sum(p_value <= crowd.alpha for p_value in crowd.p_values)
    share = 100 * out / len(crowd)
    at = f"At the guard's own alpha of {100 * crowd.alpha:g} %,"
    said = f"{at} {out:,} of {counted(len(crowd), 'image')} {'is' if out == 1 else 'are'} rejected ({share:.1f} %)."
    calibrated = len(detector.calibration) if detector.calibration is not None else 0
    few, many = rejected_count(calibrated, crowd.alpha, len(crowd))
    few = few if detector.groups is None else 0  # small classes reject less than alpha
    asked = f"Of so many familiar ones {few:,} to {many:,} would be (99 times in 100; {calibrated:,} calibrated it)"
    if out > many:
        end = f"{asked}: these are more than chance explains, so some are strange, or the images have changed."
    elif out < few:
        end = f"{asked}: these are fewer, so the images are more ordinary than those it was calibrated on."
    else:
        end = f"{asked}: by their number, these may all be familiar."
    return [f"<b>{escape(said)}</b>", escape(end)]
