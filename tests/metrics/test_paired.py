"""Differences of two methods on the same images, and means over OOD sets: intervals that cover, who is tied."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from oodshape import InputError, auroc
from oodshape.metrics.significance import Difference, MeanAuroc, Scores, delong, find_tied_with_best, paired_bootstrap


def covariance_by_pairs(methods: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    """DeLong's covariance of the AUROCs from all pairs of images, as the paper of 1988 writes it."""
    inside, outside = [], []
    for id_scores, ood_scores in methods:
        wins = (id_scores[:, None] > ood_scores) + 0.5 * (id_scores[:, None] == ood_scores)
        inside.append(wins.mean(axis=1))
        outside.append(wins.mean(axis=0))
    return np.cov(inside) / len(inside[0]) + np.cov(outside) / len(outside[0])


def two_methods(seed: int, n_id: int = 60, n_ood: int = 40, gain: float = 0.3) -> list[tuple[np.ndarray, np.ndarray]]:
    """Two methods with a common part: what makes an image hard is hard for both; the second is better by `gain`."""
    rng = np.random.default_rng(seed)
    both = rng.normal(1.0, 1, n_id), rng.normal(0, 1, n_ood)
    first, second = ([part + rng.normal(0, 0.7, len(part)) for part in both] for _ in range(2))
    return [(first[0], first[1]), (second[0] + gain, second[1])]


def compare_on_one_set(first: tuple[Any, Any], second: tuple[Any, Any]) -> Difference:
    return delong(*((inside, {"set": outside}) for inside, outside in (first, second)))


@pytest.mark.parametrize("digits", [1, 8])  # with one digit most scores are tied
@pytest.mark.parametrize("seed", range(5))
def test_delong_is_the_sum_over_pairs(seed: int, digits: int) -> None:
    methods = [(a.round(digits), b.round(digits)) for a, b in two_methods(seed)]
    found = compare_on_one_set(*methods)
    covariance = covariance_by_pairs(methods)
    spread = np.sqrt(covariance[0, 0] + covariance[1, 1] - 2 * covariance[0, 1])
    value = auroc(*methods[0]) - auroc(*methods[1])
    assert found.value == pytest.approx(value)
    assert found.low == pytest.approx(value - norm.ppf(0.975) * spread)
    assert found.high == pytest.approx(value + norm.ppf(0.975) * spread)
    assert found.p_value == pytest.approx(2 * norm.sf(abs(value) / spread))


def test_delong_by_hand() -> None:
    # first: wins (1, 1), (0, 1) -> AUROC 3/4; second: all right. Components differ by (0, -1/2) and (-1/2, 0),
    # each side's variance is 1/8, over 2 images each: spread = sqrt(1/8)
    found = compare_on_one_set(([3.0, 1.0], [2.0, 0.0]), ([3.0, 2.5], [2.0, 0.0]))
    assert found.value == -0.25
    assert found.high - found.value == pytest.approx(1.959964 * np.sqrt(1 / 8), rel=1e-6)


def test_intervals_cover_the_truth() -> None:
    """95 % intervals hold the true difference in at least 93 % of simulated comparisons."""
    truth = norm.cdf(1.0 / np.sqrt(2 * 1.49)) - norm.cdf(1.3 / np.sqrt(2 * 1.49))
    trials = [compare_on_one_set(*two_methods(seed, 150, 120)) for seed in range(1000)]
    assert np.mean([trial.low <= truth <= trial.high for trial in trials]) >= 0.93


def test_id_images_are_drawn_once_for_all_sets() -> None:
    """Two copies of one set say no more than one: the interval of the mean is that of the set."""
    methods = two_methods(0)
    # OOD scores without spread: only ID images are left to chance, and they are shared
    flat = [(a, {"x": np.zeros(40), "y": np.zeros(40)}) for a, _ in methods]
    single = [(a, {"x": np.zeros(40)}) for a, _ in methods]
    assert paired_bootstrap(auroc, *flat, resamples=200) == paired_bootstrap(auroc, *single, resamples=200)


def test_images_that_differ_are_refused() -> None:
    with pytest.raises(InputError, match=r"the same images, got \[2, 2\] and \[3, 2\] ID"):
        compare_on_one_set(([1.0, 2.0], [0.0, 1.0]), ([1.0, 2.0, 3.0], [0.0, 1.0]))
    with pytest.raises(InputError, match="same OOD sets"):
        paired_bootstrap(auroc, ([1.0], {"a": [0.0]}), ([1.0], {"b": [0.0]}))
    with pytest.raises(InputError, match="at least two ID"):
        compare_on_one_set(([1.0], [0.0, 1.0]), ([1.0], [0.0, 1.0]))


def draw(rng: np.random.Generator, shift: float = 0.0, n: int = 120) -> tuple[Scores, Scores]:
    """Two methods that share most of what makes an image hard, on two OOD sets of different sizes."""
    sizes = {"a": n // 2, "b": n}
    hard = {"ID": rng.normal(1.5, 1, n), **{name: rng.normal(0, 1, size) for name, size in sizes.items()}}
    one, two = ({k: v + rng.normal(0, 0.5, len(v)) for k, v in hard.items()} for _ in range(2))
    one["ID"] = one["ID"] + shift
    return tuple((each.pop("ID"), each) for each in (one, two))  # type: ignore[return-value]


def test_the_mean_is_that_of_the_sets_and_its_variance_a_bootstrap_s() -> None:
    one, two = draw(np.random.default_rng(1), 0.2)
    mean = MeanAuroc.of(one)
    assert mean.value == pytest.approx(np.mean([auroc(one[0], ood) for ood in one[1].values()]))
    closed, drawn = mean.minus(MeanAuroc.of(two)), paired_bootstrap(auroc, one, two, resamples=600)
    assert closed.value == pytest.approx(drawn.value)
    assert closed.high - closed.low == pytest.approx(drawn.high - drawn.low, rel=0.15)


def called_worse(k: int, correlation: float, n: int, runs: int, gap: float = 0.0, shift: float = 1.2) -> list[set[str]]:
    """The methods called worse than the best in each run; all k are equal, except that the last one lacks `gap`."""
    rng, found = np.random.default_rng(k), []
    common, own = np.sqrt(correlation), np.sqrt(1 - correlation)
    for _ in range(runs):
        hard, easy = rng.normal(0, 1, n), rng.normal(0, 1, n)
        means = {
            str(i): MeanAuroc.of(
                (
                    shift - gap * (i == k - 1) + common * hard + own * rng.normal(0, 1, n),
                    {"a": common * easy + own * rng.normal(0, 1, n)},
                )
            )
            for i in range(k)
        }
        found.append({name for name, p in find_tied_with_best(means)[1].items() if p < 0.05})
    return found


@pytest.mark.parametrize("correlation", [0.0, 0.8])
@pytest.mark.parametrize(("k", "runs"), [(2, 200), (10, 200), (43, 60)])
def test_equal_methods_are_called_worse_in_5_percent_of_runs(k: int, runs: int, correlation: float) -> None:
    """Three standard errors above 5 %; a correction over k - 1 methods alone gave 38 % for 43 methods."""
    wrong = sum(map(bool, called_worse(k, correlation, 150, runs))) / runs
    assert wrong <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_a_method_2_points_below_42_others_is_called_worse() -> None:
    """AUROC 90 and 88, 2,000 + 2,000 images: in at least 80 % of runs, and no other method."""
    assert called_worse(43, 0.8, 2000, 20, gap=0.1507, shift=1.8124).count({"42"}) >= 16


def test_what_cannot_be_compared_is_refused() -> None:
    with pytest.raises(InputError, match="no OOD set"):
        MeanAuroc.of(([1.0, 2.0], {}))
    with pytest.raises(InputError, match="no method"):
        find_tied_with_best({})
