"""Metrics of scores, pair by pair, in fractions."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise


def naive_auroc(id_scores: list[float], ood_scores: list[float]) -> Fraction:
    """P(id > ood) + P(id = ood) / 2, pair by pair."""
    halves = sum(2 * (a > b) + (a == b) for a in id_scores for b in ood_scores)
    return Fraction(halves, 2 * len(id_scores) * len(ood_scores))


def naive_fpr_at_tpr(id_scores: list[float], ood_scores: list[float], tpr: Fraction) -> Fraction:
    """The share of OOD at or above the largest score that at least the share tpr of ID reaches."""
    kept = [t for t in id_scores if Fraction(sum(a >= t for a in id_scores), len(id_scores)) >= tpr]
    return Fraction(sum(b >= max(kept) for b in ood_scores), len(ood_scores))


def naive_detection_error(id_scores: list[float], ood_scores: list[float]) -> Fraction:
    """The smallest of P(id < t) / 2 + P(ood >= t) / 2 over every score as the threshold t; at most 1/2."""
    errors = [Fraction(1, 2)]
    for t in [*id_scores, *ood_scores]:
        missed = Fraction(sum(a < t for a in id_scores), len(id_scores))
        accepted = Fraction(sum(b >= t for b in ood_scores), len(ood_scores))
        errors.append((missed + accepted) / 2)
    return min(errors)


def naive_joint_risks(
    id_scores: list[float], correct: list[bool], ood_scores: list[float]
) -> list[tuple[Fraction, Fraction]]:
    """(coverage, risk) of every threshold from strict to lenient; ID and OOD images weigh a half together."""
    images = [
        (score, Fraction(1, 2 * len(id_scores)), not right) for score, right in zip(id_scores, correct, strict=True)
    ]
    images += [(score, Fraction(1, 2 * len(ood_scores)), True) for score in ood_scores]
    found = []
    for threshold in sorted({score for score, _, _ in images}, reverse=True):
        accepted = [(weight, wrong) for score, weight, wrong in images if score >= threshold]
        coverage = sum((weight for weight, _ in accepted), Fraction(0))
        found.append((coverage, sum((weight for weight, wrong in accepted if wrong), Fraction(0)) / coverage))
    return found


def naive_joint_aurc(id_scores: list[float], correct: list[bool], ood_scores: list[float], steps: int = 2000) -> float:
    """The mean risk at the middles of many small steps of coverage; between two thresholds errors grow linearly."""
    corners = [(0.0, 0.0)]
    corners += [(float(c), float(c * risk)) for c, risk in naive_joint_risks(id_scores, correct, ood_scores)]
    total = 0.0
    for step in range(steps):
        coverage = (step + 0.5) / steps
        (c0, e0), (c1, e1) = next((a, b) for a, b in pairwise(corners) if b[0] >= coverage)
        total += (e0 + (e1 - e0) * (coverage - c0) / (c1 - c0)) / coverage
    return total / steps
