"""Fit several methods from one pass over the features, and score them on shared batches."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.features.moments import Statistic
from oodshape.features.training_sums import Sums
from oodshape.methods.detector import Detector, Method, check_scores, iterate_batches
from oodshape.methods.slots import Batch, Evidence
from oodshape.networks.device import without_autocast
from oodshape.networks.head import Head

ROWS = 512  # images per batch
# methods that need them are fitted first, so that they can be dropped
LARGE = (Statistic.SOFTMAX_SUMS, Statistic.SCATTER, Statistic.UNIT_SCATTER, Statistic.BANK)


def fit_each(
    methods: Mapping[str, Method], train: Features | Sums, proxy: Sequence[Features] = ()
) -> Iterator[tuple[str, Detector | InputError]]:
    """Yield every method fitted, or the error, from one pass over the features for all methods.

    Sums are dropped as soon as no method needs them: otherwise they are a fifth of the memory of a fit of `auto`.
    """
    collect_statistics(methods, train)
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
    """Fit several methods on the same features, from one pass over them.

    Args:
        methods: Methods by name.
        train: Features of ID training images.
        proxy: Features of proxy OOD images (`proxy_features`), for methods that select by them.

    Returns:
        Detectors by name.

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


@without_autocast()
def collect_statistics(methods: Mapping[str, Method], train: Features | Sums) -> None:
    """Collect the statistics of all methods in one pass; the features keep them."""
    train.moments(frozenset[Statistic]().union(*(method.needs for method in methods.values())))


@without_autocast()
def score_each(detectors: Mapping[str, Detector], data: Features) -> dict[str, Tensor | InputError]:
    """Return the scores of every detector, or its error; the product with the head is computed once.

    >>> train = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> score_each({"plain": Method().fit(train)}, train)
    {'plain': tensor([1.4741, 3.0789])}
    """
    scores: dict[str, Tensor] = {}
    errors: dict[str, InputError] = {}
    layers: dict[str, Head] = {}
    for name, detector in detectors.items():
        with _collect(errors, name):
            detector.check_features(data)
            layers[name] = detector.head.bind(data.head)
            scores[name] = data.head.weight.new_empty(len(data))
    for batch in _small_batches(data):  # a batch computes values, logits and directions once for all methods
        for name in [name for name in scores if name not in errors]:
            detector = detectors[name]
            with _collect(errors, name):
                evidence = Evidence(batch, detector.shape, detector.head, layers[name])
                scores[name][batch.first : batch.first + len(batch.raw)] = detector.scorer.of(evidence)
    for name in [name for name in scores if name not in errors]:
        with _collect(errors, name):
            check_scores(scores[name])
    return {name: errors.get(name, scores.get(name)) for name in detectors}  # type: ignore[misc]


@contextmanager
def _collect(errors: dict[str, InputError], name: str) -> Iterator[None]:
    try:
        yield
    except InputError as error:
        errors[name] = error


def _small_batches(data: Features) -> Iterator[Batch]:
    """Yield small batches, because some methods need several times the memory of a batch."""
    for first in range(0, len(data), ROWS):
        for batch in iterate_batches(data[first : first + ROWS]):
            yield replace(batch, first=first + batch.first)
