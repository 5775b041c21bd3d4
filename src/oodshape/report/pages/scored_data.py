"""The JSON that the page of scored images draws from: numbers of all images, explanations of those shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.benchmark.curves import compute_roc_points
from oodshape.core.errors import InputError
from oodshape.guard.check import Check, SetCheck
from oodshape.guard.explain import Explanation, explain_listed
from oodshape.guard.fitted import Fitted
from oodshape.images.decode.preprocessing import make_thumbnail
from oodshape.images.sources.image_set import ImageSource
from oodshape.metrics import conformal
from oodshape.networks.loading import OpenNet
from oodshape.report.method_styles import display_name
from oodshape.report.pages.scored_set import Role, ScoredSet, ShownImage

SHOWN = 500  # images on a page
SIDE = 144  # pixels of the longer side of an image
MOST = 0.5  # the largest alpha that the slider goes to
STEPS = 1000  # of the slider, to a share of 1
BINS = 60
ALL = "all OOD images"


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
        explained = explain_listed(guard, source, images, [item.pair for item in scored.items])
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
        of: {name: compute_roc_points(check.inside.judged[name].values, values) for name, values in each.items()}
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
