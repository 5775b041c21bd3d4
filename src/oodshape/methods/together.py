"""Several methods on the same images: fitted from one set of sums, scored on batches that share what they can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.machine import give_back
from oodshape.features.features import Features
from oodshape.features.parts import Part
from oodshape.features.sums import Sums
from oodshape.methods.batches import batches, check_scores
from oodshape.methods.detector import Detector, Method
from oodshape.methods.scores.neighbours import Guide, NeighbourDistance, both
from oodshape.methods.slots import Batch, Evidence, FittedHead, FittedScore, Shape
from oodshape.networks.head import Head

ROWS = 256  # images that are scored at once
# whoever needs them is fitted first, so that they can go; what a method keeps of the first is half as large
LARGE = (Part.SOFTMAX_SUMS, Part.SECOND, Part.UNIT_SECOND, Part.BANK)


def fit_each(
    methods: Mapping[str, Method], train: Features | Sums, panel: Sequence[Features] = ()
) -> Iterator[tuple[str, Detector | InputError]]:
    """Every method fitted, or why it cannot be; sums that no method needs any more are given back on the way.

    Those with the largest sums come first.
    """
    collect(methods, train)
    needs = {name: method.needs for name, method in methods.items()}
    everything = frozenset[Part]().union(*needs.values())
    left = sorted(methods, key=lambda name: [part not in needs[name] for part in LARGE])
    while left:
        name = left.pop(0)
        try:
            yield name, methods[name].fit(train, panel=panel)
        except InputError as error:
            yield name, error
        if isinstance(train, Features):
            train.forget(everything.difference(*(needs[name] for name in left)))
        give_back()


def fit_all(methods: Mapping[str, Method], train: Features, panel: Sequence[Features] = ()) -> dict[str, Detector]:
    """Every method fitted on the same features, from one pass over them for all that any method needs.

    The `panel` is for those that choose by it.

    >>> train = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> list(fit_all({"plain": Method()}, train))
    ['plain']
    """
    fitted: dict[str, Detector] = {}
    for name, found in fit_each(methods, train, panel):
        if isinstance(found, InputError):
            raise found
        fitted[name] = found
    return {name: fitted[name] for name in methods}


def collect(methods: Mapping[str, Method], train: Features | Sums) -> None:
    """Go over the features once for all that any of the methods needs; the features keep it."""
    train.moments(needs_of(methods))
    give_back()  # what the pass was made in


def needs_of(methods: Mapping[str, Method]) -> frozenset[Part]:
    """All that any of the methods needs."""
    return frozenset[Part]().union(*(method.needs for method in methods.values()))


def score_each(detectors: Mapping[str, Detector], data: Features) -> dict[str, Tensor | InputError]:
    """The scores of every detector as its own `score` gives them, or why there are none; the head is multiplied once.

    >>> train = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> score_each({"plain": Method().fit(train)}, train)
    {'plain': tensor([1.4741, 3.0789])}
    """
    found: dict[str, Tensor | InputError] = {}
    layers: dict[str, Head] = {}
    for name, detector in detectors.items():
        try:
            detector.check_features(data)
            layers[name] = detector.head.bind(data.head)
            found[name] = torch.empty(len(data), device=data.head.weight.device)
        except InputError as error:
            found[name] = error
    for batch in _small_batches(data):
        going = [name for name in layers if not isinstance(found[name], InputError)]
        parts = [(detectors[name].shape, detectors[name].head, detectors[name].fitted_score) for name in going]
        for name, scores in zip(going, batch_scores(batch, parts, [layers[name] for name in going]), strict=True):
            kept = found[name]
            if isinstance(kept, Tensor) and isinstance(scores, Tensor):
                kept[batch.first : batch.first + len(batch.raw)] = scores
            elif isinstance(scores, InputError):
                found[name] = scores
        give_back()
    for name, scores in found.items():
        try:
            if isinstance(scores, Tensor):
                check_scores(scores)
        except InputError as error:
            found[name] = error
    give_back()
    return found


def _small_batches(data: Features) -> Iterator[Batch]:
    """Batches of few rows: there are many methods, and some need room for several times as many values."""
    for first in range(0, len(data), ROWS):
        for batch in batches(data[first : first + ROWS]):
            yield replace(batch, first=first + batch.first)


def batch_scores(
    batch: Batch, parts: Sequence[tuple[Shape, FittedHead, FittedScore]], layers: Sequence[Head]
) -> list[Tensor | InputError]:
    """The scores of one batch by several methods, or why there are none.

    The batch keeps its float32 values, the head's logits and its directions for all of them. Two methods that look at
    the same bank look at it together.
    """
    results: dict[int, Tensor | InputError] = {}
    for distance, guide in _same_banks([scorer for _, _, scorer in parts]):
        seen = Evidence(batch, *parts[guide][:2], layers[guide])
        one, other = parts[distance][2], parts[guide][2]
        assert isinstance(one, NeighbourDistance)
        assert isinstance(other, Guide)
        results[distance], results[guide] = both(one, other, seen)
    for place, ((shape, head, scorer), layer) in enumerate(zip(parts, layers, strict=True)):
        if place not in results:
            try:
                results[place] = scorer.of(Evidence(batch, shape, head, layer))
            except InputError as error:
                results[place] = error
    return [results[place] for place in range(len(parts))]


def _same_banks(scorers: Sequence[FittedScore]) -> Iterator[tuple[int, int]]:
    """(place of a distance, place of a guide) where both look at the same bank."""
    guides = [place for place, scorer in enumerate(scorers) if isinstance(scorer, Guide)]
    for distance, scorer in enumerate(scorers):
        if isinstance(scorer, NeighbourDistance) and guides:
            guide = scorers[guides[0]]
            assert isinstance(guide, Guide)
            if guide.shares_bank(scorer):
                yield distance, guides.pop(0)
