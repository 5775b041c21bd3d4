"""What is OpenOOD's own about a run: its settings, and the ID images that it pools."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from oodshape.benchmark.spec import Benchmark
from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.methods.detector import Method
from oodshape.methods.openood_settings import Setting, openood_settings
from oodshape.methods.registry import METHODS
from oodshape.networks import zoo

NAME = "openood"  # of its settings
VAL = "val"  # its ID validation images among the sets of a run


@dataclass(frozen=True)
class Protocol:
    """How methods are fitted: on the training images as they are, or as OpenOOD does it."""

    settings: dict[str, Setting]  # empty unless they are OpenOOD's

    @classmethod
    def of(cls, benchmark: Benchmark) -> Protocol:
        """That of a benchmark; ODIN's step is in units of its networks' preprocessing."""
        if benchmark.settings != NAME:
            return cls({})
        known = [zoo.model_entry(spec.name) for spec in benchmark.models if ":" not in spec.name]
        return cls(openood_settings(known[0].native.std if known else (1.0,)))

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
        """(name, source) of the ID sets besides train and test."""
        if any(self.fitted_on(name) == VAL for name in methods):
            if not benchmark.val:
                raise InputError(f"OpenOOD's settings need ID validation images: {benchmark.name} has no val in [id]")
            yield VAL, benchmark.val
        yield from ((look.name, look.images) for look in benchmark.pooled)


def pooled_accuracy(parts: Iterable[Features]) -> float | None:
    """The share of all labelled images whose class is predicted; None where none has a label."""
    right, known = 0, 0
    for part in parts:
        if part.labels is not None:
            labelled = part.labels >= 0
            right += int((part.predictions.cpu()[labelled] == part.labels[labelled]).sum())
            known += int(labelled.sum())
    return right / known if known else None
