"""Why was this image rejected? What the network, the guard and its components say about single images."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from oodshape.core.options import RunOptions
from oodshape.features.kernels import unit
from oodshape.guard.fitted import Fitted
from oodshape.guard.scoring.score_images import Seen, see, see_given
from oodshape.images.sources.image_set import ImageSource
from oodshape.images.sources.listing import Given
from oodshape.methods.base import Batch, Evidence, FittedHead, Identity, Shape
from oodshape.methods.fusion import Fusion
from oodshape.networks.head import Outputs
from oodshape.networks.loading import Source

CLASSES, FEATURES, NEIGHBOURS = 3, 5, 3  # how many of each are told


class Guess(NamedTuple):
    """A class that the network considers."""

    label: str | int
    probability: float


class Opinion(NamedTuple):
    """What one method says: its score, and the share of familiar images with a score as low."""

    method: str
    score: float
    p_value: float


class Impact(NamedTuple):
    """One feature's part in the predicted class's logit, as it is and after shaping."""

    feature: int
    value: float
    before: float  # w z
    after: float | None  # w theta(z) z; None where nothing is shaped


class Neighbour(NamedTuple):
    """An image of the fitting set that the guard kept, and how alike the network finds the two."""

    sample: int  # its number among those kept
    name: str
    label: str | int
    cosine: float


@dataclass(frozen=True)
class Explanation:
    """One image: what it is taken for, whether that is to be trusted, and what speaks for it and against it."""

    path: str
    guesses: tuple[Guess, ...] = ()  # the predicted class and the next ones
    score: float | None = None
    p_value: float | None = None  # the share of held-out familiar images with a score as low
    threshold: float | None = None  # the smallest score that is accepted for this class
    accepted: bool | None = None  # None: could not be read
    components: tuple[Opinion, ...] = ()  # of a guard that fuses several methods; its one method else
    shaped_by: str = ""  # whose theta the impacts are shaped by
    supporting: tuple[Impact, ...] = ()  # the features with the largest w z, and ...
    opposing: tuple[Impact, ...] = ()  # ... those with the lowest
    nearest: tuple[Neighbour, ...] = ()  # where the guard keeps samples
    error: str = ""


def explain_images(
    guard: Fitted, source: Source, images: Given, run: RunOptions, *, prepared: bool = False
) -> Iterator[Explanation]:
    """The explanation of each image, in the order given."""
    for batch in see_given(guard, source, images, run, prepared=prepared):
        yield from _explained(guard, batch)


def explain_listed(
    guard: Fitted, source: Source, images: ImageSource, pairs: Sequence[tuple[str, int]]
) -> Iterator[Explanation]:
    """The explanations of some images of a listing."""
    for batch in see(guard, source, images, iter(pairs)):
        yield from _explained(guard, batch)


def _explained(guard: Fitted, seen: Seen) -> list[Explanation]:
    rows = [Explanation(path, error=seen.errors.get(place, "")) for place, (path, _) in enumerate(seen.pairs)]
    if seen.outputs is None:
        return rows
    classes, scores, p_values, accepted = (values.tolist() for values in seen.decision)
    limits = guard.detector.limits.tolist()
    guesses, opinions, nearest = _guesses(guard, seen.outputs), _opinions(guard, seen), _nearest(guard, seen.outputs)
    name, for_it, against = _impacts(guard, seen.outputs)
    for at, place in enumerate(seen.rows):
        rows[place] = Explanation(
            path=seen.pairs[place][0],
            guesses=guesses[at],
            score=scores[at],
            p_value=p_values[at],
            threshold=limits[classes[at] if len(limits) > 1 else 0],
            accepted=accepted[at],
            components=opinions[at],
            shaped_by=name,
            supporting=for_it[at],
            opposing=against[at],
            nearest=nearest[at],
        )
    return rows


def _guesses(guard: Fitted, outputs: Outputs) -> list[tuple[Guess, ...]]:
    values, places = outputs.logits.softmax(dim=1).topk(min(CLASSES, outputs.logits.shape[1]), dim=1)
    pairs = zip(places.tolist(), values.tolist(), strict=True)
    return [tuple(Guess(guard.label(c), p) for c, p in zip(*pair, strict=True)) for pair in pairs]


def _opinions(guard: Fitted, seen: Seen) -> list[tuple[Opinion, ...]]:
    """Each component's own score, and its place among the ID images that it was chosen on."""
    scorer = guard.detector.scorer
    assert seen.outputs is not None
    if not isinstance(scorer, Fusion) or len(scorer.components) == 1:
        name = scorer.components[0].name if isinstance(scorer, Fusion) else guard.about.method or "its method"
        pairs = zip(seen.decision.scores.tolist(), seen.decision.p_values.tolist(), strict=True)
        return [(Opinion(name, score, p_value),) for score, p_value in pairs]
    outputs = seen.outputs
    batch = Batch(outputs.features, outputs.head, given_logits=outputs.logits)
    evidence = Evidence(batch, guard.detector.shape, guard.detector.head, outputs.head)
    told = []
    for component in (*scorer.components, *scorer.filters):
        scores = component.of(evidence)
        p_values = component.log_p(scores).double().exp()
        pairs = zip(scores.tolist(), p_values.tolist(), strict=True)
        told.append([Opinion(component.name, *pair) for pair in pairs])
    return list(zip(*told, strict=True))


Ranked = list[tuple[Impact, ...]]


def _impacts(guard: Fitted, outputs: Outputs) -> tuple[str, Ranked, Ranked]:
    """Whose theta shapes, and for each image the features that speak most for and against its class."""
    name, shape, head = _shaping(guard)
    raw, classes = outputs.features.float(), outputs.logits.argmax(dim=1)
    before = outputs.head.weight[classes] * raw
    shaped = None if shape is None or head is None else head.bind(outputs.head).weight[classes] * shape(raw)
    sides: tuple[Ranked, Ranked] = ([], [])
    for largest, found in zip((True, False), sides, strict=True):
        values, places = before.topk(min(FEATURES, before.shape[1]), dim=1, largest=largest)
        after = None if shaped is None else shaped.gather(1, places).tolist()
        for row, (own, which, impacts) in enumerate(
            zip(raw.gather(1, places).tolist(), places.tolist(), values.tolist(), strict=True)
        ):
            told = [None] * len(which) if after is None else after[row]
            every = [Impact(*each) for each in zip(which, own, impacts, told, strict=True)]
            found.append(tuple(each for each in every if (each.before > 0) is largest and each.before != 0))
    return name, *sides


def _shaping(guard: Fitted) -> tuple[str, Shape | None, FittedHead | None]:
    """The guard's own shape, or that of the first of its components that has one."""
    detector = guard.detector
    if not isinstance(detector.shape, Identity):
        return guard.about.method or "its method", detector.shape, detector.head
    if isinstance(detector.scorer, Fusion):
        for component in detector.scorer.components:
            if not isinstance(component.shape, Identity):
                return component.name, component.shape, component.head
    return "", None, None


def _nearest(guard: Fitted, outputs: Outputs) -> list[tuple[Neighbour, ...]]:
    kept = guard.about.samples
    if kept is None:
        return [()] * len(outputs)
    directions = np.asarray(unit(outputs.features.float()).cpu())
    places, cosines = kept.nearest(directions, NEIGHBOURS)
    return [
        tuple(
            Neighbour(which, kept.names[which], guard.label(int(kept.classes[which])), cosine)
            for which, cosine in zip(rows, values, strict=True)
        )
        for rows, values in zip(places.tolist(), cosines.tolist(), strict=True)
    ]
