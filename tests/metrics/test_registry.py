"""The registry of metrics, joint and selective risk by brute force, the test of two verdicts; no heavy import."""

from __future__ import annotations

import math
from fractions import Fraction
from math import comb
from statistics import NormalDist

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oodshape.core.errors import InputError
from oodshape.metrics.detection import Estimate, auroc, bootstrap
from oodshape.metrics.registry import METRICS, check_metrics, find_metric, flatten_metrics, gather_metrics, measure
from oodshape.metrics.significance import mcnemar
from oracle.metrics import naive_joint_aurc, naive_joint_risks

scores = st.lists(st.integers(0, 6).map(float), min_size=1, max_size=12)
answers = st.lists(st.tuples(st.integers(0, 6).map(float), st.booleans()), min_size=1, max_size=12)


def joint(id_scores: list[float], correct: list[bool], ood_scores: list[float]) -> tuple[float, float]:
    _, means = measure(id_scores, {"ood": ood_scores}, correct=correct, resamples=1)
    return means["joint_aurc"].value, means["joint_coverage"].value


@settings(max_examples=50)
@given(answers, scores)
def test_joint_risk_coverage_is_brute_force(images: list[tuple[float, bool]], ood: list[float]) -> None:
    inside, correct = [score for score, _ in images], [right for _, right in images]
    area, coverage = joint(inside, correct, ood)
    assert area == pytest.approx(naive_joint_aurc(inside, correct, ood), abs=2e-3)
    allowed = [c for c, risk in naive_joint_risks(inside, correct, ood) if risk <= Fraction(1, 20)]
    assert coverage == float(max(allowed, default=Fraction(0)))


@pytest.mark.parametrize(
    ("inside", "correct", "ood", "area", "coverage"),
    [
        ([2.0], [True], [1.0], 0.5 - 0.5 * math.log(2), 0.5),  # risk 0 up to half the coverage, then (c - 1/2) / c
        ([1.0], [True], [2.0], 0.5 + 0.5 * math.log(2), 0.0),  # risk 1 up to half the coverage, then 1 / 2 c
        ([1.0], [True], [1.0], 0.5, 0.0),  # no threshold tells them apart
        ([2.0], [False], [1.0], 1.0, 0.0),  # nothing is right
        # a wrong answer between a right one and OOD: 0 to 1/4, (c - 1/4) / c to 1
        ([3.0, 2.0], [True, False], [1.0], 0.75 - 0.25 * math.log(4), 0.25),
    ],
)
def test_joint_risk_coverage_by_hand(
    inside: list[float], correct: list[bool], ood: list[float], area: float, coverage: float
) -> None:
    assert joint(inside, correct, ood) == pytest.approx((area, coverage), abs=1e-12)
    assert joint(inside * 3, correct * 3, ood * 3) == pytest.approx((area, coverage), abs=1e-12)
    assert joint(inside, correct, ood * 5) == pytest.approx((area, coverage), abs=1e-12)  # OOD weighs a half


def test_five_percent_is_allowed_exactly() -> None:
    inside, correct = list(range(1, 21)), [False, *[True] * 19]
    assert joint(inside, correct, [0.0])[1] == 0.5  # 1 of 20
    assert joint(inside[:-1], correct[:-1], [0.0])[1] == pytest.approx(0.5 * 18 / 19)  # 1 of 19 is too many


def test_every_set_has_the_bootstrap_of_its_own_and_the_mean_that_of_shared_id_images() -> None:
    rng = np.random.default_rng(0)
    inside, ood = rng.normal(1, 1, 80), {"a": rng.normal(0, 1, 60), "b": rng.normal(0, 2, 60)}
    sets, means = measure(inside, ood, resamples=40, seed=3)
    assert sets["a"]["auroc"] == bootstrap(auroc, inside, ood["a"], resamples=40, seed=3)
    assert means["auroc"].value == pytest.approx(np.mean([auroc(inside, part) for part in ood.values()]))
    one, two, both = (each["auroc"].high - each["auroc"].low for each in (sets["a"], sets["b"], means))
    assert both < (one + two) / 2  # OOD images of the sets are drawn independently
    assert "joint_aurc" not in means  # no labels
    assert "fit_seconds" not in means


def test_intervals_of_means_cover_the_truth_as_often_as_they_say() -> None:
    def draw(seed: int, n: int) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
        rng = np.random.default_rng(seed)
        right = rng.random(n) < 0.9
        return rng.normal(1.5 + right, 1), {"a": rng.normal(0, 1, n), "b": rng.normal(0.5, 1, n)}, right

    names = ("auroc", "fpr95", "joint_aurc", "joint_coverage")
    big = draw(999, 40_000)
    truth = measure(*big[:2], correct=big[2], resamples=1)[1]
    hits = dict.fromkeys(names, 0)
    for seed in range(150):
        inside, ood, right = draw(seed, 100)
        found = measure(inside, ood, correct=right, resamples=200, seed=seed)[1]
        for name in names:
            hits[name] += found[name].low <= truth[name].value <= found[name].high
    assert all(count / 150 >= 0.9 for count in hits.values()), hits  # 0.95, less three standard errors


@pytest.mark.parametrize(("shift", "n_id", "n_ood"), [(2.0, 288, 20), (3.5, 288, 20), (3.5, 100, 50), (2.0, 288, 3)])
def test_intervals_of_a_few_images_cover_the_truth(shift: float, n_id: int, n_ood: int) -> None:
    normal, rng = NormalDist(), np.random.default_rng(1)
    truth = {"auroc": normal.cdf(shift / math.sqrt(2)), "fpr95": normal.cdf(normal.inv_cdf(0.95) - shift)}
    hits = dict.fromkeys(truth, 0)
    for _ in range(150):
        found = measure(rng.normal(shift, 1, n_id), {"ood": rng.normal(0, 1, n_ood)})[0]["ood"]
        for name, value in truth.items():
            hits[name] += found[name].low <= value <= found[name].high
    assert all(count / 150 >= 0.9 for count in hits.values()), hits  # 0.95, less three standard errors


def test_one_image_says_next_to_nothing() -> None:
    found = measure(np.arange(100.0), {"ood": [-1.0]})[0]["ood"]
    assert found["fpr95"] == Estimate(0.0, 0.0, 1.0)
    assert (found["auroc"].value, found["auroc"].high) == (1.0, 1.0)
    assert found["auroc"].low < 0.3


def test_costs_have_no_interval_and_are_not_bounded_by_one() -> None:
    sets, means = measure([1.0], {"a": [0.0], "b": [0.0]}, fit_seconds=7.0, image_seconds={"a": 0.002, "b": 0.004})
    assert sets["a"]["fit_seconds"] == means["fit_seconds"] == Estimate(7.0, 7.0, 7.0)
    assert means["image_ms"].value == pytest.approx(3.0)
    check_metrics(means)
    with pytest.raises(InputError, match=r"auroc must lie in \[0, 1\], got 7"):
        check_metrics({"auroc": Estimate(7.0, 7.0, 7.0)})
    with pytest.raises(InputError, match="fit_seconds must be at least 0 and finite, got -1"):
        check_metrics({"fit_seconds": Estimate(-1.0, 0.0, 0.0)})


def test_flat_columns_come_back() -> None:
    found = {
        name: Estimate(0.5, 0.4, 0.6) if each.interval else Estimate(2.0, 2.0, 2.0) for name, each in METRICS.items()
    }
    assert gather_metrics({"method": "msp", **flatten_metrics(found)}) == (found, {"method": "msp"})


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(InputError, match="no metric is called 'aurok'; did you mean auroc"):
        find_metric("aurok")
    with pytest.raises(InputError, match="no OOD set"):
        measure([1.0], {})
    with pytest.raises(InputError, match="2 truth values, one per ID image"):
        measure([1.0, 2.0], {"a": [0.0]}, correct=[True])
    with pytest.raises(InputError, match="joint_aurc cannot be computed from scores alone"):
        METRICS["joint_aurc"]([1.0], [0.0])


def test_mcnemar_is_the_two_sided_sign_test() -> None:
    one = np.array([True] * 9 + [False] * 2 + [True] * 40)
    other = np.array([False] * 9 + [True] * 2 + [True] * 40)
    assert mcnemar(one, other) == pytest.approx(2 * sum(comb(11, k) for k in range(3)) / 2**11)
    assert mcnemar(one, other) == mcnemar(other, one)
    assert mcnemar(one, one) == 1.0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="same images"):
        mcnemar([True], [True, False])
