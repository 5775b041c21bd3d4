"""The images on which methods are most confidently wrong, as thumbnails small enough to keep with results."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import mean
from typing import Any

import numpy as np

from oodshape.benchmark.results import Row
from oodshape.benchmark.samples import Pick, Samples
from oodshape.features.features import Features
from oodshape.images.image_set import ImageSet
from oodshape.images.thumbnail import thumbnail

FEATURED = ("optfs-e", "auto")  # kept beside the best method of each network
INSIDE = ""  # the name of the ID images among the OOD sets


@dataclass(frozen=True)
class _Wrong:
    """A pick before its images are drawn."""

    model: str
    method: str
    ood: str
    rows: tuple[int, ...]
    numbers: dict[str, tuple[Any, ...]]


class Gallery:
    """Collects the `count` most wrong images of every method, and draws those of a few methods at the end."""

    def __init__(self, sets: Mapping[str, ImageSet], count: int) -> None:
        """A gallery over the sets of a run; `test` holds the ID images."""
        self._sets, self._count = sets, count
        self._wrong: list[_Wrong] = []

    def add(self, model: str, method: str, scores: Mapping[str, Any], features: Mapping[str, Features]) -> None:
        """Note the worst images of a method from its scores by set: `test` and the OOD sets."""
        arrays = {name: np.asarray(values, np.float64) for name, values in scores.items()}
        inside = np.sort(arrays["test"])
        every = np.sort(np.concatenate([values for name, values in arrays.items() if name != "test"]))
        for name, values in arrays.items():
            ours = name == "test"
            rows = np.argsort(values if ours else -values, kind="stable")[: self._count]
            worst = values[rows]
            if ours:
                shares = 1 - np.searchsorted(every, worst, side="right") / len(every)
            else:
                shares = np.searchsorted(inside, worst, side="left") / len(inside)
            labels = features[name].labels
            numbers: dict[str, tuple[Any, ...]] = {
                "scores": tuple(float(f"{value:.6g}") for value in np.nan_to_num(worst)),
                "shares": tuple(shares.round(4).tolist()),
                "predicted": tuple(features[name].predictions[rows.tolist()].tolist()),
                "labels": (-1,) * len(rows) if labels is None else tuple(labels[rows.tolist()].tolist()),
            }
            self._wrong.append(_Wrong(model, method, INSIDE if ours else name, tuple(rows.tolist()), numbers))

    def samples(self, rows: Iterable[Row]) -> Samples:
        """The picks of the best method of each model by mean AUROC, and of the featured ones, with thumbnails."""
        found: dict[str, dict[str, list[float]]] = {}
        for row in rows:
            found.setdefault(row.model, {}).setdefault(row.method, []).append(row.auroc)
        shown = {
            model: (max(methods, key=lambda name: mean(methods[name])), *FEATURED) for model, methods in found.items()
        }
        places: dict[tuple[str, int], int] = {}
        images: list[str] = []
        picks = []
        for wrong in self._wrong:
            if wrong.method not in shown[wrong.model] or not wrong.rows:
                continue
            name = wrong.ood or "test"
            for row_number in wrong.rows:
                if (name, row_number) not in places:
                    places[name, row_number] = len(images)
                    images.append(thumbnail(self._sets[name][row_number]))
            at = tuple(places[name, row_number] for row_number in wrong.rows)
            picks.append(Pick(model=wrong.model, method=wrong.method, ood=wrong.ood, images=at, **wrong.numbers))
        return Samples(tuple(images), tuple(picks))
