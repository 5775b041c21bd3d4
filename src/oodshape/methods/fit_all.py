"""Several methods on the same images: fitted from one set of sums, scored on batches that share what they can."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.features.statistic import Statistic
from oodshape.features.sums import Sums
from oodshape.methods.base import Batch, Evidence
from oodshape.methods.detector import Detector, Method, batches, check_scores
from oodshape.networks.head import Head

ROWS = 256  # images that are scored at once
# methods that need them are fitted first, so that they can be dropped
LARGE = (Statistic.SOFTMAX_SUMS, Statistic.SECOND, Statistic.UNIT_SECOND, Statistic.BANK)


def fit_each(
    methods: Mapping[str, Method], train: Features | Sums, proxy: Sequence[Features] = ()
) -> Iterator[tuple[str, Detector | InputError]]:
    """Every method fitted, or why it cannot be, from one pass over the features for all that any method needs.

    Sums that no method needs any more are dropped on the way: kept, they are a fifth of the memory of a fit of `auto`.
    """
    collect(methods, train)
    needs = {name: method.needs for name, method in methods.items()}
    everything = frozenset[Statistic]().union(*needs.values())
    left = sorted(methods, key=lambda name: [part not in needs[name] for part in LARGE])
    while left:
        name = left.pop(0)
        try:
            yield name, methods[name].fit(train, proxy=proxy)
        except InputError as error:
            yield name, error
        if isinstance(train, Features):
            train.forget(everything.difference(*(needs[other] for other in left)))


def fit_all(methods: Mapping[str, Method], train: Features, proxy: Sequence[Features] = ()) -> dict[str, Detector]:
    """Every method fitted on the same features, from one pass over them for all that any method needs.

    The `proxy` is for those that choose by it.

    >>> train = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> list(fit_all({"plain": Method()}, train))
    ['plain']
    """
    fitted: dict[str, Detector] = {}
    for name, found in fit_each(methods, train, proxy):
        if isinstance(found, InputError):
            raise found
        fitted[name] = found
    return {name: fitted[name] for name in methods}


def collect(methods: Mapping[str, Method], train: Features | Sums) -> None:
    """Go over the features once for all that any of the methods needs; the features keep it."""
    train.moments(frozenset[Statistic]().union(*(method.needs for method in methods.values())))


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
    for batch in _small_batches(data):  # which keep values, logits and directions for all methods
        for name, layer in layers.items():
            scores = found[name]
            if isinstance(scores, Tensor):
                detector = detectors[name]
                seen = Evidence(batch, detector.shape, detector.head, layer)
                try:
                    scores[batch.first : batch.first + len(batch.raw)] = detector.scorer.of(seen)
                except InputError as error:
                    found[name] = error
    for name, scores in found.items():
        try:
            if isinstance(scores, Tensor):
                check_scores(scores)
        except InputError as error:
            found[name] = error
    return found


def _small_batches(data: Features) -> Iterator[Batch]:
    """Batches of few rows: there are many methods, and some need room for several times as many values."""
    for first in range(0, len(data), ROWS):
        for batch in batches(data[first : first + ROWS]):
            yield replace(batch, first=first + batch.first)
