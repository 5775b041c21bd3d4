"""What is OpenOOD's own about a run: its settings, its search on validation images, the ID images that it pools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import Tensor

from oodshape.benchmark.spec import Benchmark
from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.methods.describe import format_short_recipe
from oodshape.methods.detector import Detector, Method
from oodshape.methods.openood_settings import OpenOODSetting, openood_settings
from oodshape.methods.registry import METHODS
from oodshape.metrics.detection import auroc
from oodshape.networks import zoo

NAME = "openood"  # of its settings
VAL, OOD_VAL = "val", "ood-val"  # of its validation images among the sets of a run


@dataclass
class Protocol:
    """How methods are fitted: on the training images as they are, or as OpenOOD does it."""

    settings: dict[str, OpenOODSetting]  # empty unless they are OpenOOD's
    tuned: bool = False  # whether its grids are searched on OOD validation images
    chosen: dict[str, dict[str, str]] = field(default_factory=dict)  # by network and method, once it has run

    @classmethod
    def of(cls, benchmark: Benchmark, *, tuned: bool) -> Protocol:
        """That of a benchmark; ODIN's step is in units of its networks' preprocessing."""
        if benchmark.settings != NAME:
            return cls({}, tuned)
        known = [zoo.model_entry(spec.name) for spec in benchmark.models if ":" not in spec.name]
        return cls(openood_settings(known[0].native.std if known else (1.0,)), tuned)

    @property
    def methods(self) -> dict[str, Method]:
        """All methods, with OpenOOD's settings where it has the method."""
        own = {name: setting.method for name, setting in self.settings.items()}
        return {name: own.get(name, method) for name, method in METHODS.items()}

    def fitted_on(self, name: str) -> str:
        """The set that a method is fitted on."""
        return self.settings[name].fit if name in self.settings else "train"

    def by_set(self, methods: Mapping[str, Method]) -> dict[str, dict[str, Method]]:
        """The methods by the set that they are fitted on."""
        found: dict[str, dict[str, Method]] = {}
        for name, method in methods.items():
            found.setdefault(self.fitted_on(name), {})[name] = method
        return found

    def sets(self, benchmark: Benchmark, methods: Iterable[str]) -> Iterator[tuple[str, str]]:
        """(name, source) of the ID sets besides train and test, and of the images to choose by."""
        fits_on_val = any(self.fitted_on(name) == VAL for name in methods)
        if self.tuned and not (self.settings and benchmark.val and benchmark.ood_val):
            raise InputError(f"{benchmark.name} has no OpenOOD settings or no validation images, to choose by")
        if fits_on_val and not benchmark.val:
            raise InputError(f"OpenOOD's settings need ID validation images: {benchmark.name} has no val in [id]")
        if self.tuned or fits_on_val:
            yield VAL, benchmark.val
        if self.tuned:
            yield OOD_VAL, benchmark.ood_val
        yield from ((look.name, look.images) for look in benchmark.pooled)

    def choose(
        self,
        title: str,
        name: str,
        method: Method,
        train: Features,
        scores: Callable[[Detector, str], tuple[Tensor, float | None]],
    ) -> Method:
        """The method itself, or the one that OpenOOD's search finds for a network; it is noted."""
        if not self.tuned or name not in self.settings or not self.settings[name].grid:
            return method
        best = _select_best(self.settings[name].grid, train, lambda *given: scores(*given)[0])
        self.chosen.setdefault(title, {})[name] = format_short_recipe(best)
        return best


def _select_best(grid: Iterable[Method], train: Features, scores: Callable[[Detector, str], Tensor]) -> Method:
    """The method of a grid with the best AUROC of ID against OOD validation images; of equals the first.

    `scores` gives a fitted method's scores of a set by its name. Settings that cannot be fitted, such as more
    dimensions than there are features, are passed over.
    """
    best, chosen, refused = -1.0, None, ""
    for method in grid:
        try:
            detector = method.fit(train)
            value = auroc(scores(detector, VAL), scores(detector, OOD_VAL))
        except InputError as error:
            refused = str(error)
            continue
        if value > best:
            best, chosen = value, method
    if chosen is None:
        raise InputError(f"no setting of the grid can be fitted: {refused}")
    return chosen


def pooled_accuracy(parts: Iterable[Features]) -> float | None:
    """The share of all labelled images whose class is predicted; None where none has a label."""
    right, known = 0, 0
    for part in parts:
        if part.labels is not None:
            labelled = part.labels >= 0
            right += int((part.predictions.cpu()[labelled] == part.labels[labelled]).sum())
            known += int(labelled.sum())
    return right / known if known else None
