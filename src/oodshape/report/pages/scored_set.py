"""Sets of scored images for their page: numbers of all images, a sample to show, tables by class, and JSON to draw."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.text import format_rate
from oodshape.guard.check import Check, SetCheck
from oodshape.guard.explain import Explanation, explain_batches
from oodshape.guard.fitted import Fitted
from oodshape.guard.scoring.score_images import score_listed
from oodshape.images import identity
from oodshape.images.decode.preprocessing import make_thumbnail
from oodshape.images.sources.open_images import ImageSource
from oodshape.metrics import conformal
from oodshape.metrics.detection import roc_points
from oodshape.networks.loading import OpenNet
from oodshape.report.method_styles import display_name
from oodshape.report.pages.html import html_table

Pair = tuple[str, int]
Role = Literal["id", "ood", "new"]
CLEAR = 0.01  # significance level
ROWS = 15  # rows of a table of classes
FEW = 10  # a class of fewer images has no rate
NOTE = f"The order may be chance. Classes of fewer than {FEW} images have no rate and come last."


SHOWN = 500  # images on a page
SIDE = 144  # pixels of the longer side of an image
MOST = 0.5  # the largest alpha that the slider goes to
STEPS = 1000  # of the slider, to a share of 1
BINS = 60
ALL = "all OOD images"


class ClassCount(NamedTuple):
    """Images of one class, and how many are rejected."""

    name: str
    images: int
    rejected: int


class ShownImage(NamedTuple):
    """An image that may be shown."""

    p_value: float
    score: float
    pair: Pair
    label: str  # predicted


class ScoredSet:
    """Scored images, added one by one: a few numbers of each are kept, and at most `keep` images to show.

    Those are the images with the lowest and the highest p-values, and a random subset by a hash of their names.
    """

    def __init__(self, name: str, role: Role, keep: int, *, alpha: float) -> None:
        self.name, self.role, self.keep, self.alpha = name, role, max(keep, 1), alpha
        self.scores, self.p_values, self.softmax_p = array("f"), array("d"), array("d")
        self.names: dict[str, int] = {}  # of classes -> their numbers
        self._classes = array("i")
        self._kept: tuple[list[tuple[float, int, ShownImage]], ...] = ([], [], [])

    def __len__(self) -> int:
        return len(self.p_values)

    def add(self, item: ShownImage, softmax_p: float | None = None) -> None:
        """Add an image."""
        self.scores.append(item.score)
        self.p_values.append(item.p_value)
        if softmax_p is not None:
            self.softmax_p.append(softmax_p)
        self._classes.append(self.names.setdefault(item.label, len(self.names)))
        drawn = int(identity.hash_each([item.pair[0].encode(errors="surrogateescape")])[0]) / 2**64
        # the worst image is at the top of each heap and is replaced first; among equals the first stays
        for heap, worth in zip(self._kept, (-item.p_value, item.p_value, -drawn), strict=True):
            push = heapq.heappush if len(heap) < self.keep else heapq.heappushpop
            push(heap, (worth, -len(self), item))

    @property
    def items(self) -> list[ShownImage]:
        """The images to show, by ascending p-value."""
        low, high, drawn = (sorted(heap, reverse=True) for heap in self._kept)
        third = -(-self.keep // 3)
        found: dict[int, ShownImage] = {}
        for _, number, item in (*low[:third], *high[:third], *drawn):
            if len(found) < self.keep:
                found[number] = item
        return [found[number] for number in sorted(found, key=lambda number: (found[number].p_value, -number))]

    @property
    def classes(self) -> list[ClassCount]:
        """The predicted classes; the highest rejection rate first, small ones last."""
        places = np.asarray(self._classes, np.int32)
        sizes = np.bincount(places, minlength=len(self.names)).tolist()
        rejected = np.bincount(places[np.asarray(self.p_values) <= self.alpha], minlength=len(self.names)).tolist()
        rows = map(ClassCount, self.names, sizes, rejected)
        return sorted(rows, key=lambda row: (row.images < FEW, -row.rejected / row.images, -row.images, row.name))

    def rejected(self, ticks: NDArray[np.float64], *, softmax: bool = False) -> list[int]:
        """Count the images that are rejected at each alpha in `ticks`."""
        values = np.sort(np.asarray(self.softmax_p if softmax else self.p_values, np.float64))
        return list(map(int, np.searchsorted(values, ticks, side="right")))


def class_tables(sets: Sequence[ScoredSet]) -> str:
    """Return tables of the classes at the guard's threshold, of images that may be ID."""
    parts = []
    for scored in sets:
        if scored.role != "ood" and len(scored.names) > 1:
            parts += [f"<h3>{escape(scored.name)}, by predicted class: most rejected first</h3>", _table(scored)]
    if not parts:
        return "<p>One class.</p>"
    at = f"At alpha = {100 * sets[0].alpha:g} %, that of the guard."
    return "\n".join([f"<p>{at}</p>", *parts, f'<p class="soft">{NOTE}</p>'])


def _table(scored: ScoredSet) -> str:
    """The first classes."""
    classes = scored.classes
    rows = []
    for each in classes[:ROWS]:
        rate = format_rate(each.rejected / each.images) if each.images >= FEW else "–"
        rows.append([each.name, f"{each.images:,}", f"{each.rejected:,}", rate])
    rest = f'<p class="soft">and {len(classes) - ROWS:,} more</p>' if len(classes) > ROWS else ""
    return html_table(["class", "images", "rejected", "rate"], rows, f"{scored.name} by class") + rest


def collect_set(guard: Fitted, images: SetCheck, role: Role, keep: int) -> ScoredSet:
    """A set of a check as its page needs it."""
    scored = ScoredSet(images.name, role, keep, alpha=guard.detector.alpha or 0.0)
    softmax = [None] * len(images.pairs) if images.softmax is None else images.softmax.p_values.tolist()
    rows = zip(images.guard.p_values.tolist(), images.guard.values.tolist(), images.pairs, strict=True)
    for row, own, other in zip(rows, images.classes.tolist(), softmax, strict=True):
        scored.add(ShownImage(*row, str(guard.label(own))), other)
    return scored


def scored_data(guard: Fitted, sets: Sequence[ScoredSet], items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Everything that the page draws; `items` come from `describe_images`."""
    detector = guard.detector
    alpha = detector.alpha or 0.0
    ticks = np.unique([*np.arange(1, int(MOST * STEPS) + 1) / STEPS, alpha])
    held_out = np.asarray(detector.calibration, np.float64)
    values = [np.asarray(scored.scores, np.float64) for scored in sets]
    edges = _edges([held_out, *values], detector.threshold)
    softmax = guard.about.baseline is not None and all(len(scored.softmax_p) for scored in sets)
    sides = {"guard": False} | ({"softmax": True} if softmax else {})
    return {
        "alpha": alpha,
        "ticks": ticks.tolist(),
        "thresholds": None if detector.groups is not None else [_limit(held_out, tick) for tick in ticks.tolist()],
        "calibration": len(held_out),
        "axis": [_short(edges[0]), _short(edges[-1])],
        "heldOut": _counts(held_out, edges),
        "sets": [
            {
                "name": scored.name,
                "role": scored.role,
                "images": len(scored),
                "counts": _counts(own, edges),
                "rejected": {name: scored.rejected(ticks, softmax=of_softmax) for name, of_softmax in sides.items()},
            }
            for scored, own in zip(sets, values, strict=True)
        ],
        "items": items,
    }


def describe_images(
    guard: Fitted, source: OpenNet, sets: Sequence[tuple[ScoredSet, ImageSource]]
) -> list[dict[str, Any]]:
    """Return the description of every image that the page shows."""
    found = []
    for place, (scored, images) in enumerate(sets):
        batches = score_listed(guard, source, images, (item.pair for item in scored.items))
        explained = explain_batches(guard, batches)
        for item, why in zip(scored.items, explained, strict=True):
            found.append(_describe(item, why) | {"set": place, "picture": _picture(images, item, guard.about.upright)})
    return found


def roc_curves(check: Check) -> dict[str, Any]:
    """ROC points [FPR, TPR] by OOD set and detector; of several sets, also of all their images together."""
    parts = {each.name: {name: scores.values for name, scores in each.judged.items()} for each in check.outside}
    if len(parts) > 1:
        detectors = check.inside.judged
        parts = {ALL: {name: np.concatenate([each[name] for each in parts.values()]) for name in detectors}} | parts
    return {
        of: {name: roc_points(check.inside.judged[name].values, values) for name, values in each.items()}
        for of, each in parts.items()
    }


def _describe(item: ShownImage, why: Explanation) -> dict[str, Any]:
    return {
        "path": item.pair[0],
        "p": item.p_value,
        "score": _short(item.score),
        "label": item.label,
        "guesses": [[str(guess.label), _short(guess.probability)] for guess in why.guesses],
        "components": [[display_name(opinion.method), _short(opinion.p_value)] for opinion in why.components],
    }


def _picture(images: ImageSource, item: ShownImage, upright: bool) -> str:
    """The image as a data address; empty where it has gone since."""
    try:
        return make_thumbnail(images.read(item.pair, upright=upright), SIDE)
    except InputError:
        return ""


def _edges(parts: Sequence[NDArray[np.float64]], limit: float) -> NDArray[np.float64]:
    """One axis for every panel: all but the outermost hundredth of any set lies on it."""
    low = min(limit, *(float(np.quantile(part, 0.01)) for part in parts if len(part)))
    high = max(limit, *(float(np.quantile(part, 0.99)) for part in parts if len(part)))
    room = 0.02 * (high - low) or 0.5
    return np.linspace(low - room, high + room, BINS + 1)


def _counts(values: NDArray[np.float64], edges: NDArray[np.float64]) -> list[int]:
    return list(map(int, np.histogram(np.clip(values, edges[0], edges[-1]), edges)[0]))


def _limit(held_out: NDArray[np.float64], alpha: float) -> float | None:
    """The threshold of that alpha; None where nothing is rejected."""
    place = conformal.threshold_rank(len(held_out), alpha)
    return _short(float(held_out[place - 1])) if place else None


def _short(value: float) -> float:
    return float(f"{value:.4g}")
