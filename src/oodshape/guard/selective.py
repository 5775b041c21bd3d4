"""What gets accepted should be right: the network's accuracy on the images that a guard accepts."""

from __future__ import annotations

from dataclasses import dataclass

from oodshape.guard.set_check import SetCheck, exact_share
from oodshape.metrics.separation import Estimate, aurc


@dataclass(frozen=True)
class Selective:
    """What gets accepted should be right: accuracy in general and among accepted images, and the area under risk."""

    images: int  # with a label
    accuracy: Estimate
    accepted: dict[str, Estimate]  # detector -> accuracy among the images that it accepts; none where it accepts none
    aurc: dict[str, float]  # detector -> area under its risk-coverage curve: low is good


def selective(inside: SetCheck) -> Selective | None:
    """Accuracy among accepted images, for those whose label is known."""
    if inside.labels is None:
        return None
    known = inside.labels >= 0
    right = (inside.classes == inside.labels)[known]
    accepted: dict[str, Estimate] = {}
    areas: dict[str, float] = {}
    for name, scores in inside.judged.items():
        kept = right[scores.passed[known]]
        areas[name] = aurc(scores.values[known], right)
        if len(kept):
            accepted[name] = exact_share(int(kept.sum()), len(kept))
    return Selective(int(known.sum()), exact_share(int(right.sum()), len(right)), accepted, areas)
