"""Explain decisions on single images: predictions, the guard's score, and those of its component detectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from oodshape.guard.fitted import Fitted
from oodshape.guard.scoring.score_images import ScoredBatch, make_rows
from oodshape.methods.fusion import Fusion
from oodshape.methods.slots import Batch, Evidence
from oodshape.networks.head import Outputs

CLASSES = 3  # how many predictions are told


class ClassGuess(NamedTuple):
    """A class that the network considers."""

    label: str | int
    probability: float


class MethodScore(NamedTuple):
    """The score of one component detector, and its p-value."""

    method: str
    score: float
    p_value: float


@dataclass(frozen=True)
class Explanation:
    """The explanation of one decision: predictions, score and p-value, and those of each component detector."""

    path: str
    guesses: tuple[ClassGuess, ...] = ()  # the predicted class and the next ones
    score: float | None = None
    p_value: float | None = None  # the share of held-out familiar images with a score as low
    accepted: bool | None = None  # None: could not be read
    threshold: float | None = None  # the smallest score that is accepted for this class
    components: tuple[MethodScore, ...] = ()  # of a guard that fuses several methods; its one method else
    error: str = ""


def explain_batches(guard: Fitted, batches: Iterable[ScoredBatch]) -> Iterator[Explanation]:
    """The explanation of each scored image, in order."""
    for batch in batches:
        yield from _explained(guard, batch)


def _explained(guard: Fitted, seen: ScoredBatch) -> list[Explanation]:
    rows = [Explanation(row.path, (), *row[2:5], error=row.error) for row in make_rows(guard, seen)]
    if seen.outputs is None:
        return rows
    limits, classes = guard.detector.limits.tolist(), seen.decision.classes.tolist()
    guesses, opinions = _guesses(guard, seen.outputs), _opinions(guard, seen)
    for at, place in enumerate(seen.rows):
        limit = limits[classes[at] if len(limits) > 1 else 0]
        rows[place] = replace(rows[place], guesses=guesses[at], threshold=limit, components=opinions[at])
    return rows


def _guesses(guard: Fitted, outputs: Outputs) -> list[tuple[ClassGuess, ...]]:
    values, places = outputs.logits.softmax(dim=1).topk(min(CLASSES, outputs.logits.shape[1]), dim=1)
    pairs = zip(places.tolist(), values.tolist(), strict=True)
    return [tuple(ClassGuess(guard.label(c), p) for c, p in zip(*pair, strict=True)) for pair in pairs]


def _opinions(guard: Fitted, seen: ScoredBatch) -> list[tuple[MethodScore, ...]]:
    """Each component's own score, and its place among the ID images that it was chosen on."""
    scorer = guard.detector.scorer
    assert seen.outputs is not None
    if not isinstance(scorer, Fusion) or len(scorer.components) == 1:
        name = scorer.components[0].name if isinstance(scorer, Fusion) else guard.about.method or "its method"
        pairs = zip(seen.decision.scores.tolist(), seen.decision.p_values.tolist(), strict=True)
        return [(MethodScore(name, score, p_value),) for score, p_value in pairs]
    outputs = seen.outputs
    batch = Batch(outputs.features, outputs.head, given_logits=outputs.logits)
    evidence = Evidence(batch, guard.detector.shape, guard.detector.head, outputs.head)
    told = []
    for component in (*scorer.components, *scorer.filters):
        scores = component.of(evidence)
        p_values = component.log_p(scores).double().exp()
        pairs = zip(scores.tolist(), p_values.tolist(), strict=True)
        told.append([MethodScore(component.name, *pair) for pair in pairs])
    return list(zip(*told, strict=True))
