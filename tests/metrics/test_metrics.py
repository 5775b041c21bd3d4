"""Laws and hand-computed values of the metrics, held against naive double loops and scikit-learn."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc, precision_recall_curve, roc_auc_score, roc_curve

from oodshape.core.errors import InputError
from oodshape.metrics.detection import aupr_in, aupr_out, auroc, bootstrap, detection_error, fpr_at_tpr
from oodshape.metrics.registry import measure
from oracle.metrics import naive_auroc, naive_detection_error, naive_fpr_at_tpr

tied = st.lists(st.integers(-4, 4).map(float), min_size=1, max_size=25)
free = st.lists(st.floats(allow_nan=False, width=32), min_size=1, max_size=25)
scores = st.one_of(tied, free)
METRICS: list[Callable[[Any, Any], float]] = [
    auroc,
    fpr_at_tpr,
    partial(fpr_at_tpr, positive="ood"),
    aupr_in,
    aupr_out,
    detection_error,
]


def normal(n_id: int, n_ood: int, shift: float = 1.0, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.normal(shift, 1, n_id), rng.normal(0, 1, n_ood)


def summary(id_scores: Any, ood_scores: Any, **how: Any) -> dict[str, Any]:
    return measure(id_scores, {"ood": ood_scores}, **how)[1]


def labelled(id_scores: Any, ood_scores: Any) -> tuple[np.ndarray, np.ndarray]:
    return np.r_[np.ones(len(id_scores)), np.zeros(len(ood_scores))], np.r_[id_scores, ood_scores]


# Against the oracles


@given(scores, scores)
def test_auroc_counts_pairs(a: list[float], b: list[float]) -> None:
    assert auroc(a, b) == float(naive_auroc(a, b))


@given(scores, scores, st.integers(1, 1000))
def test_fpr_scans_every_threshold(a: list[float], b: list[float], permille: int) -> None:
    assert fpr_at_tpr(a, b, tpr=permille / 1000) == float(naive_fpr_at_tpr(a, b, Fraction(permille, 1000)))


@given(scores, scores)
def test_detection_error_scans_every_threshold(a: list[float], b: list[float]) -> None:
    assert detection_error(a, b) == float(naive_detection_error(a, b))


@given(tied, tied)
def test_equals_scikit_learn(a: list[float], b: list[float]) -> None:
    labels, values = labelled(a, b)
    assert auroc(a, b) == pytest.approx(roc_auc_score(labels, values), abs=1e-12)
    precision, recall, _ = precision_recall_curve(labels, values)
    assert aupr_in(a, b) == pytest.approx(auc(recall, precision), abs=1e-12)
    precision, recall, _ = precision_recall_curve(1 - labels, -values)
    assert aupr_out(a, b) == pytest.approx(auc(recall, precision), abs=1e-12)


@given(tied, tied)
def test_fpr_reads_the_roc_curve_as_the_papers_code_does(a: list[float], b: list[float]) -> None:
    # All points kept: scikit-learn's default drops some on tied, slanted parts of the curve.
    fpr, tpr, _ = roc_curve(*labelled(a, b), drop_intermediate=False)
    assert fpr_at_tpr(a, b) == pytest.approx(fpr[np.argmax(tpr >= 0.95)], abs=1e-12)


# By hand


@pytest.mark.parametrize(
    ("a", "b", "values"),  # AUROC, FPR95, FPR95 with OOD positive, AUPR-in, AUPR-out, detection error
    [
        ([2, 3], [0, 1], (1, 0, 0, 1, 1, 0)),
        ([0, 1], [2, 3], (0, 1, 1, 7 / 24, 7 / 24, 1 / 2)),
        ([5], [5], (1 / 2, 1, 1, 3 / 4, 3 / 4, 1 / 2)),
        ([3, 2], [2, 1], (7 / 8, 1 / 2, 1 / 2, 11 / 12, 11 / 12, 1 / 4)),
        ([4, 2], [3, 1], (3 / 4, 1 / 2, 1 / 2, 19 / 24, 19 / 24, 1 / 4)),
        ([math.inf, 0], [0, -math.inf], (7 / 8, 1 / 2, 1 / 2, 11 / 12, 11 / 12, 1 / 4)),
        ([0.0], [-0.0], (1 / 2, 1, 1, 3 / 4, 3 / 4, 1 / 2)),
    ],
)
def test_by_hand(a: list[float], b: list[float], values: tuple[float, ...]) -> None:
    assert [metric(a, b) for metric in METRICS] == pytest.approx(values, abs=1e-15)


@pytest.mark.parametrize("percent", [5, 55, 56, 57, 58, 95, 99])
@pytest.mark.parametrize("n", [20, 100, 180, 200, 500, 2000])
def test_no_rounding_in_the_number_of_id_scores_kept(n: int, percent: int) -> None:
    kept = -(-percent * n // 100)
    rising = np.arange(n)
    assert fpr_at_tpr(rising, rising, tpr=percent / 100) == kept / n


# Laws


@given(scores, scores)
def test_ood_positive_is_id_positive_on_negated_scores(a: list[float], b: list[float]) -> None:
    minus_a, minus_b = [-x for x in a], [-x for x in b]
    assert fpr_at_tpr(a, b, positive="ood") == fpr_at_tpr(minus_b, minus_a)
    assert aupr_out(a, b) == aupr_in(minus_b, minus_a)
    assert detection_error(a, b) == detection_error(minus_b, minus_a)


@pytest.mark.parametrize("metric", METRICS)
@given(a=tied, b=tied, order=st.randoms(use_true_random=False))
def test_only_the_order_of_scores_counts(metric: Any, a: list[float], b: list[float], order: Any) -> None:
    for grow in (math.exp, lambda x: x**3, lambda x: 2 * x - 7, math.atan):
        assert metric([grow(x) for x in a], [grow(x) for x in b]) == metric(a, b)
    assert metric(order.sample(a, len(a)), b) == metric(a, b)


@pytest.mark.parametrize("metric", METRICS)
def test_any_container_and_dtype(metric: Any) -> None:
    a, b = [3.0, 2.5, 0.5, 2.0], [0.0, 2.0, -1.5]
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        assert metric(torch.tensor(a, dtype=dtype, requires_grad=True), np.array(b)) == metric(a, b)
    assert metric(np.array(a, np.float32), tuple(b)) == metric(a, b)
    assert metric(torch.tensor([3, 1]), np.array([True, False])) == metric([3.0, 1.0], [1.0, 0.0])
    assert type(metric(a, b)) is float


def test_float32_and_float64_compare_by_value() -> None:
    assert auroc(np.array([0.1], np.float32), np.array([0.1])) == 1.0  # float32's 0.1 is the larger one
    assert auroc(np.array([0.5], np.float32), np.array([0.5])) == 0.5


# Errors


@pytest.mark.parametrize("metric", [*METRICS, summary, partial(bootstrap, auroc)])
@pytest.mark.parametrize(
    ("bad", "message"),
    [
        ([1.0, math.nan, math.nan], r"\[1\] is NaN \(2 of 3 are\)"),
        (torch.tensor([math.nan]), r"\[0\] is NaN"),
        ([], r"shape \[0\]"),
        (3.0, r"shape \[\]"),
        ([[1.0, 2.0]], r"shape \[1, 2\]"),
        (["a"], "needs one number per image"),
        ([1j], "complex128"),
        ([1.0, None], "object"),
        ([[1.0], [1.0, 2.0]], "needs one number per image"),
    ],
)
def test_unusable_scores_are_named(metric: Any, bad: Any, message: str) -> None:
    with pytest.raises(InputError, match=f"^id_scores.*{message}"):
        metric(bad, [1.0])
    with pytest.raises(InputError, match=f"^ood_scores.*{message}"):
        metric([1.0], bad)


def test_unusable_settings_are_named() -> None:
    with pytest.raises(InputError, match="positive must be 'id' or 'ood', got 'in'"):
        fpr_at_tpr([1.0], [0.0], positive="in")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"tpr must lie in \(0, 1\], got 95; did you mean 0.95"):
        fpr_at_tpr([1.0], [0.0], tpr=95)
    for estimate in (summary, partial(bootstrap, auroc)):
        with pytest.raises(InputError, match=r"level must lie in \(0, 1\), got 95; did you mean 0.95"):
            estimate([1.0], [0.0], level=95)
        with pytest.raises(InputError, match="resamples must be at least 1, got 0"):
            estimate([1.0], [0.0], resamples=0)


# The bootstrap


@given(scores, scores, st.integers(0, 2**32))
def test_the_summary_is_the_bootstrap_of_each_metric(a: list[float], b: list[float], seed: int) -> None:
    found = summary(a, b, resamples=9, level=0.8, seed=seed)
    named = {"fpr95": fpr_at_tpr, "auroc": auroc, "aupr_in": aupr_in, "aupr_out": aupr_out}
    for name, metric in named.items():
        estimate, plain = found[name], bootstrap(metric, a, b, resamples=9, level=0.8, seed=seed)
        assert estimate.value == pytest.approx(metric(a, b), abs=1e-12)
        assert (estimate.low, estimate.high) == pytest.approx((plain.low, plain.high), abs=1e-12)


def test_the_limits_are_percentiles() -> None:
    values = iter([*range(101), 50])
    found = bootstrap(lambda x, y: next(values), [1.0], [0.0], level=0.9, resamples=101)
    assert (found.value, found.low, found.high) == pytest.approx((50, 5, 95))
