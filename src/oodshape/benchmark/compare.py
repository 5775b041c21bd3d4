"""Two methods on the same images of a run: how much they differ, within what limits, and whether that is chance."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from oodshape.benchmark.kept_scores import KeptScores
from oodshape.core.errors import InputError
from oodshape.metrics.paired import Difference, delong, fpr95, paired_bootstrap
from oodshape.metrics.separation import Positive, auroc

AVERAGE = "average"


@dataclass(frozen=True)
class Compared:
    """The first method less the second, on one network and OOD set (or the mean over the sets)."""

    model: str
    ood: str
    metric: str  # AUROC or FPR95
    first: float
    second: float
    difference: Difference


def compared(
    scores: KeptScores,
    first: str,
    second: str,
    *,
    level: float = 0.95,
    resamples: int = 1000,
    seed: int = 0,
    positive: Positive = "id",
) -> Iterator[Compared]:
    """AUROC by DeLong, FPR95 and the means over OOD sets by a paired bootstrap, for every network."""
    metric = fpr95 if positive == "id" else _mirrored
    how: dict[str, Any] = {"level": level, "resamples": resamples, "seed": seed}
    for model in scores.by_model:
        methods = scores.of(model)
        for name in (first, second):
            if name not in methods:
                raise InputError(f"no scores of a method {name!r} were kept; there are {', '.join(methods)}")
        (id_a, sets_a), (id_b, sets_b) = methods[first], methods[second]
        for ood in sets_a:
            pair = (id_a, sets_a[ood]), (id_b, sets_b[ood])
            yield Compared(model, ood, "AUROC", auroc(*pair[0]), auroc(*pair[1]), delong(*pair, level=level))
            made = paired_bootstrap(metric, (id_a, {ood: sets_a[ood]}), (id_b, {ood: sets_b[ood]}), **how)
            yield Compared(model, ood, "FPR95", metric(*pair[0]), metric(*pair[1]), made)
        for title, each in (("AUROC", auroc), ("FPR95", metric)):
            one, two = (
                sum(each(inside, ood) for ood in sets.values()) / len(sets)
                for inside, sets in (methods[first], methods[second])
            )
            made = paired_bootstrap(each, methods[first], methods[second], **how)
            yield Compared(model, AVERAGE, title, one, two, made)


def _mirrored(id_scores: Any, ood_scores: Any) -> float:
    return fpr95(-ood_scores, -id_scores)
