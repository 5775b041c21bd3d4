"""Render the page of scored images for `score` and `check`: what is accepted, at which threshold, and why."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from html import escape
from pathlib import Path
from typing import Any

from oodshape.core.text import format_count
from oodshape.guard.describe import lines
from oodshape.guard.fitted import Fitted
from oodshape.guard.verdict import Scored
from oodshape.images.sources.open_images import ImageSource
from oodshape.methods.detector import Detector
from oodshape.metrics.conformal import rejected_count_limits
from oodshape.networks.loading import OpenNet
from oodshape.report.method_styles import display_name
from oodshape.report.pages.html import banner, definitions, fill_template, html_table, page_json, write_page
from oodshape.report.pages.scored_set import SHOWN, ScoredSet, ShownImage, class_tables, describe_images, scored_data

BROKEN = 100  # unreadable images that are listed
SCRIPTS = ("elements.js", "scored.js")


@dataclass(frozen=True)
class Origin:
    """The command and the guard file that a page was made with, if known."""

    command: str = ""
    guard: str = ""  # its file


def write_scored_sets(
    path: str | Path,
    title: str,
    top: str,
    guard: Fitted,
    sets: Sequence[ScoredSet],
    items: Sequence[Mapping[str, Any]],
    origin: Origin,
    more: Mapping[str, tuple[str, str]],
    **charts: Any,
) -> None:
    """Write the page: `top` is the decision, `more` sections by id as (title, body); all are HTML.

    `items` come from `describe_images`; `charts` is further data for the page to draw.
    """
    title = f"{title}, {Path(origin.guard).name or 'a guard in memory'}"
    data = scored_data(guard, [each for each in sets if len(each)], items) | charts
    kinds = {"id": "ID", "ood": "OOD", "new": "scored"}
    counts = {kind: sum(len(each) for each in sets if each.role == role) for role, kind in kinds.items()}
    images = " and ".join(f"{count:,} {kind}" for kind, count in counts.items() if count)
    calibrated = 0 if guard.detector.calibration is None else len(guard.detector.calibration)
    components = ", ".join(display_name(each.name) for each in getattr(guard.detector.scorer, "components", ()))
    method = display_name(guard.about.method) + (f" ({components})" if components else "")
    parts = {
        "title": escape(title),
        "sub": escape(f"method {method} · {calibrated:,} calibration images · {images or 'no'} images"),
        "top": top,
        "shown": escape(_shown(sets, len(items))),
        "groups": class_tables(sets),
        "origin": definitions(fact for fact in (*_facts(guard, origin), *lines(guard)) if fact[1]),
        "data": page_json({**data, "guard": shlex.quote(Path(origin.guard).name or "guard.safetensors")}),
    }
    write_page(path, title, fill_template("scored.html", parts, more), SCRIPTS, "scored.css")


def list_unreadable(rows: Sequence[tuple[str, str]], count: int) -> dict[str, tuple[str, str]]:
    """The section on images that could not be read, the first of them as (file, why); none if there are none."""
    table = html_table(["file", "why"], rows[:BROKEN], "Unreadable images")
    return {"unreadable": (f"Unreadable: {count:,}", table)} if count else {}


def _facts(guard: Fitted, origin: Origin) -> list[tuple[str, str]]:
    """Return the network, the guard's file, the date and the command."""
    about = guard.about
    weights = f" with {Path(about.weights).name}" if about.weights else ""
    network = f"{about.model or 'given in Python'}{weights} ({about.network})"
    when = date.today().isoformat()
    return [("network", network), ("guard", origin.guard or "in memory"), ("date", when), ("command", origin.command)]


def _shown(sets: Sequence[ScoredSet], items: int) -> str:
    total = sum(map(len, sets))
    if items == total:
        first = "" if all(scored.role == "new" for scored in sets) else ", mistakes first"
        return f"All {format_count(total, 'image')}, sorted by p-value{first}." if total > 1 else ""
    return (
        f"A sample: {items:,} of {total:,} images. Of each set, the lowest p-values, the highest p-values and a random "
        "subset; all figures above and below count all images."
    )


class ScoredRows:
    """Collect rows of `score` for the page, in bounded memory."""

    def __init__(self, guard: Fitted, name: str) -> None:
        self.scored = ScoredSet(name, "new", SHOWN, alpha=guard.detector.alpha or 0.0)
        self.broken: list[tuple[str, str]] = []
        self.unreadable = self._seen = 0

    def add(self, row: Scored) -> None:
        """Add a row."""
        number, self._seen = self._seen, self._seen + 1
        if row.score is None or row.p_value is None:
            self.unreadable += 1
            if len(self.broken) < BROKEN:
                self.broken.append((row.path, row.error))
            return
        self.scored.add(ShownImage(row.p_value, row.score, (row.path, number), str(row.label)))


def write_scored_page(
    guard: Fitted, source: OpenNet, images: ImageSource, seen: ScoredRows, path: str | Path, origin: Origin
) -> None:
    """Write the page; the shown images are read again from `images`."""
    scored = seen.scored
    items = describe_images(guard, source, [(scored, images)])
    top, more = banner(*_verdict(scored, guard.detector)), list_unreadable(seen.broken, seen.unreadable)
    write_scored_sets(path, f"Scores: {scored.name}", top, guard, [scored], items, origin, more)


def _verdict(scored: ScoredSet, detector: Detector) -> tuple[str, str, str]:
    """Return the banner: how many images are rejected, and whether that is expected of ID images."""
    if not len(scored):
        return "bad", "No image could be read", ""
    out = sum(p_value <= scored.alpha for p_value in scored.p_values)
    images = format_count(len(scored), "image")
    head = f"{out:,} of {images} rejected ({100 * out / len(scored):.1f} %) at alpha = {100 * scored.alpha:g} %"
    if detector.groups is not None:  # each class has its own threshold, so the total has no known distribution
        return "ok", head, ""
    calibrated = len(detector.calibration) if detector.calibration is not None else 0
    few, many = rejected_count_limits(calibrated, scored.alpha, len(scored))
    body = f"Expected for ID images: {few:,} to {many:,} (99 % range, {calibrated:,} calibration images). "
    if out > many:
        return "warn", head, f"{body}More are rejected: some images are OOD, or the images have changed."
    if out < few:
        return "ok", head, f"{body}Fewer are rejected: the images are more typical than the calibration set."
    return "ok", head, f"{body}The number of rejections is consistent with all images being ID."
