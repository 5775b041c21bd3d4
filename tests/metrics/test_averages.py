"""Means over OOD sets that share their ID images: intervals that cover, differences, who is tied with the best."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oodshape import InputError, auroc, fpr_at_tpr
from oodshape.metrics.averages import MeanAuroc, fpr95, mean_fpr95, tied_with_best
from oodshape.metrics.paired import Scores, delong, paired_bootstrap


def draw(rng: np.random.Generator, shift: float = 0.0, n: int = 120) -> tuple[Scores, Scores]:
    """Two methods that share most of what makes an image hard, on two OOD sets of different sizes."""
    sizes = {"a": n // 2, "b": n}
    hard = {"ID": rng.normal(1.5, 1, n), **{name: rng.normal(0, 1, size) for name, size in sizes.items()}}
    one, two = ({k: v + rng.normal(0, 0.5, len(v)) for k, v in hard.items()} for _ in range(2))
    one["ID"] = one["ID"] + shift
    return tuple((each.pop("ID"), each) for each in (one, two))  # type: ignore[return-value]


def test_one_set_is_delong() -> None:
    (inside_a, a), (inside_b, b) = draw(np.random.default_rng(0))
    wanted = delong((inside_a, a["a"]), (inside_b, b["a"]))
    got = MeanAuroc.of((inside_a, {"a": a["a"]})).minus(MeanAuroc.of((inside_b, {"a": b["a"]})))
    assert (got.value, got.low, got.high, got.p_value) == pytest.approx(
        (wanted.value, wanted.low, wanted.high, wanted.p_value)
    )


def test_the_mean_is_that_of_the_sets_and_its_variance_a_bootstrap_s() -> None:
    one, two = draw(np.random.default_rng(1), 0.2)
    mean = MeanAuroc.of(one)
    assert mean.value == pytest.approx(np.mean([auroc(one[0], ood) for ood in one[1].values()]))
    closed, drawn = mean.minus(MeanAuroc.of(two)), paired_bootstrap(auroc, one, two, resamples=600)
    assert closed.value == pytest.approx(drawn.value)
    assert closed.high - closed.low == pytest.approx(drawn.high - drawn.low, rel=0.15)


def test_intervals_of_averages_and_their_differences_cover_the_truth() -> None:
    """95 % intervals cover in at least 93 % of 600 simulations; the truth comes from one very large draw."""
    big_one, big_two = draw(np.random.default_rng(99), 0.2, n=40_000)
    true_auroc = np.mean([auroc(big_one[0], ood) for ood in big_one[1].values()])
    true_gap = true_auroc - np.mean([auroc(big_two[0], ood) for ood in big_two[1].values()])
    true_fpr = np.mean([fpr95(big_one[0], ood) for ood in big_one[1].values()])
    hits = np.zeros(3)
    for seed in range(600):
        one, two = draw(np.random.default_rng(seed), 0.2)
        mean = MeanAuroc.of(one)
        made = mean.estimate()
        gap = mean.minus(MeanAuroc.of(two))
        fpr = mean_fpr95(one, resamples=400, seed=seed)
        hits += [made.low <= true_auroc <= made.high, gap.low <= true_gap <= gap.high, fpr.low <= true_fpr <= fpr.high]
    assert (hits / 600 >= 0.93).all(), hits / 600


def test_drawn_thresholds_are_those_of_resamples() -> None:
    """The interval of a bootstrap that makes its resamples is the same up to chance."""
    one, _ = draw(np.random.default_rng(3))
    rng, made = np.random.default_rng(0), []
    for _ in range(3000):
        inside = rng.choice(one[0], len(one[0]))
        made.append(np.mean([fpr95(inside, rng.choice(ood, len(ood))) for ood in one[1].values()]))
    drawn = mean_fpr95(one, resamples=3000)
    low, high = np.quantile(made, [0.025, 0.975])
    assert (drawn.low, drawn.high) == pytest.approx((low, high), abs=0.03)
    assert drawn.value == pytest.approx(np.mean([fpr_at_tpr(one[0], ood) for ood in one[1].values()]))


@settings(max_examples=60)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=60), st.lists(st.integers(0, 9), min_size=1, max_size=60))
def test_fpr95_without_sorting(inside: list[int], outside: list[int]) -> None:
    assert fpr95(np.array(inside, float), np.array(outside, float)) == fpr_at_tpr(inside, outside)


def test_tied_are_those_that_nobody_can_tell_apart() -> None:
    rng = np.random.default_rng(4)
    inside, sets = rng.normal(2, 1, 400), {"a": rng.normal(0, 1, 400)}
    near = (inside + rng.normal(0, 0.01, 400), sets)
    far = (rng.normal(0, 1, 400), sets)
    best, p_values = tied_with_best(
        {name: MeanAuroc.of(s) for name, s in (("x", (inside, sets)), ("y", near), ("z", far))}
    )
    (other,) = {"x", "y"} - {best}
    assert p_values[other] >= 0.05
    assert p_values["z"] < 1e-6


def test_no_difference_is_seldom_called_one_among_many() -> None:
    """Twenty equal methods: after Holm some is called worse than the best in few simulations."""
    wrong = 0
    for seed in range(100):
        rng = np.random.default_rng(seed)
        hard, out = rng.normal(1.5, 1, 80), rng.normal(0, 1, 80)
        scores = {str(i): (hard + rng.normal(0, 0.3, 80), {"a": out + rng.normal(0, 0.3, 80)}) for i in range(20)}
        wrong += any(p < 0.05 for p in tied_with_best({k: MeanAuroc.of(s) for k, s in scores.items()})[1].values())
    assert wrong <= 25  # the best is the luckiest of twenty, which no correction over methods knows


def test_what_cannot_be_compared_is_refused() -> None:
    one = MeanAuroc.of(([1.0, 2.0], {"a": [0.0, 1.0]}))
    with pytest.raises(InputError, match="same images"):
        one.minus(MeanAuroc.of(([1.0, 2.0, 3.0], {"a": [0.0, 1.0]})))
    with pytest.raises(InputError, match="at least two"):
        MeanAuroc.of(([1.0], {"a": [0.0, 1.0]}))
    for call in (lambda: MeanAuroc.of(([1.0, 2.0], {})), lambda: mean_fpr95(([1.0, 2.0], {}))):
        with pytest.raises(InputError, match="no OOD set"):
            call()
    with pytest.raises(InputError, match="no method"):
        tied_with_best({})
    with pytest.raises(InputError, match="resamples"):
        mean_fpr95(([1.0, 2.0], {"a": [0.0]}), resamples=0)
