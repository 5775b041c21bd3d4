"""Metrics of scores, pair by pair, in fractions."""

from __future__ import annotations

from fractions import Fraction


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
