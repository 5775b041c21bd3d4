"""Thresholds against their exact law, also per class; decisions about many; the sequential test of a rate."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, betabinom, binom, chisquare, norm

from data import features
from oodshape import METHODS, Detector, Features, InputError
from oodshape.metrics.conformal import (
    POOL,
    allowed_rate,
    false_discoveries,
    fewest_flagged,
    group_by_class,
    images_needed,
    p_values,
    rejected_count_limits,
    rejection_rate_limits,
    threshold,
    threshold_rank,
)
from oodshape.metrics.sequential_test import ODDS, RateTest

ENERGY = METHODS["energy"].fit(features())


def test_the_fewest_images_by_hand() -> None:
    assert [images_needed(alpha) for alpha in (0.05, 0.1, 0.01, 0.5, 0.3)] == [19, 9, 99, 1, 3]
    for alpha in (0.05, 0.3, 0.07):
        assert threshold_rank(images_needed(alpha), alpha) == 1
        assert threshold_rank(images_needed(alpha) - 1, alpha) == 0


def test_the_rejected_count_follows_the_beta_binomial_law() -> None:
    n, alpha, fresh, runs = 59, 0.1, 40, 4000
    rng = np.random.default_rng(0)
    held_out = np.sort(rng.normal(size=(runs, n)).astype(np.float32), axis=1)
    scores = rng.normal(size=(runs, fresh)).astype(np.float32)
    limits = np.array([threshold(row, alpha) for row in held_out])
    counts = (scores < limits[:, None]).sum(axis=1)
    law = betabinom(fresh, 6, n + 1 - 6)  # 6 = floor(0.1 * 60)
    cells = 10  # counts from here on are one cell
    seen = np.bincount(np.minimum(counts, cells), minlength=cells + 1)
    wanted = runs * np.append(law.pmf(np.arange(cells)), law.sf(cells - 1))
    assert chisquare(seen, wanted).pvalue > 0.001
    # a binomial with the same mean is too narrow: the test can tell
    narrow = runs * np.append(binom(fresh, 0.1).pmf(np.arange(cells)), binom(fresh, 0.1).sf(cells - 1))
    assert chisquare(seen, narrow).pvalue < 1e-6
    low, high = rejected_count_limits(n, alpha, fresh)
    assert np.mean((counts < low) | (counts > high)) <= 0.01 + 3 * np.sqrt(0.01 / runs)
    assert law.cdf(low - 1) <= 0.005 < law.cdf(low)
    assert law.sf(high) <= 0.005 < law.sf(high - 1)
    shares = rejection_rate_limits(n, alpha)
    assert 0 < shares[0] < 0.1 < shares[1] < 0.3


def mixed(n: int, seed: int) -> Features:
    """Features whose predicted classes have scores on very different levels."""
    rng = np.random.default_rng(seed)
    label = rng.choice(4, p=[0.5, 0.3, 0.18, 0.02], size=n)
    z = rng.gamma(2.0, size=(n, 4)) * 0.1
    z[np.arange(n), label] += (1 + label) * 3 + rng.normal(size=n) * 0.3
    return Features.from_arrays(z.astype(np.float32), (np.eye(4, dtype=np.float32), np.zeros(4, np.float32)))


def test_each_class_keeps_its_own_promise() -> None:
    detector = METHODS["mls"].fit(mixed(200, 0))
    rejected = {True: np.zeros(4), False: np.zeros(4)}
    seen = np.zeros(4)
    for seed in range(40):
        fresh = mixed(400, 1000 + seed)
        classes = fresh.predictions.numpy()
        seen += np.bincount(classes, minlength=4)
        for per_class in (True, False):
            calibrated = detector.calibrate(mixed(300, seed + 1), 0.1, per_class=per_class)
            out = ~calibrated.decide(fresh).accepted.numpy()
            rejected[per_class] += np.bincount(classes[out], minlength=4)
    own, pooled = rejected[True] / seen, rejected[False] / seen
    # k / (n + 1) with k = floor(0.1 (n + 1)) lies a little below 0.1
    assert np.all(np.abs(own[:2] - 0.09) < 0.025), own
    together = rejected[True][2:].sum() / seen[2:].sum()  # class 3 is rare, and class 2 in its pool
    assert 0.08 < together < 0.12
    assert pooled[0] > 0.15  # one threshold for all rejects mostly the class with low scores
    assert pooled[1] < 0.02


def test_classes_with_too_few_images_share_a_pool_with_the_smallest_class() -> None:
    held_out = mixed(300, 1)
    detector = METHODS["mls"].fit(mixed(200, 0)).calibrate(held_out, 0.1, per_class=True)
    classes, scores = held_out.predictions.numpy(), detector.score(held_out).numpy()
    counts = np.bincount(classes, minlength=4)
    assert counts[3] < images_needed(0.1) <= counts[2] < counts[1]
    assert sorted(detector.class_scores) == [POOL, 0, 1]
    for labels in ([0], [1], [2, 3]):
        mine = np.sort(scores[np.isin(classes, labels)])
        assert detector.thresholds[labels].tolist() == [float(mine[threshold_rank(len(mine), 0.1) - 1])] * len(labels)
    assert detector.threshold == float(detector.thresholds[3])


# (number of classes, share of images) per kind of class, each kind with its own level of scores
POPULATIONS = {
    "10 rare images": ((4, 0.95), (90, 0.05)),
    "many rare classes": ((10, 0.8), (90, 0.2)),
    "classes at the limit": ((4, 0.4), (12, 0.6)),
    "two classes": ((1, 0.9), (1, 0.1)),
    "one rare class": ((5, 0.97), (1, 0.03)),
}


@pytest.mark.parametrize("name", POPULATIONS)
@pytest.mark.parametrize("step", [-3.0, 3.0])
def test_rare_classes_do_not_raise_the_rejection_rate(name: str, step: float) -> None:
    """Mean rejection over 1,000 calibration sets, overall and by kind of class, with exact rates of normal scores."""
    rng, alpha, n = np.random.default_rng(0), 0.05, 200
    sizes, shares = zip(*POPULATIONS[name], strict=True)
    law = np.repeat(np.array(shares) / sizes, sizes)
    level = np.repeat(step * np.arange(len(sizes)), sizes)
    rates = []
    for _ in range(1000):
        groups = rng.choice(len(law), size=n, p=law)
        scores = (level[groups] + rng.normal(size=n)).astype(np.float32)
        order = np.argsort(scores)
        found = group_by_class(scores[order], groups[order], alpha)
        limits = np.array([threshold(found.get(label, found[POOL]), alpha) for label in range(len(law))])
        rates.append(law @ norm.cdf(limits - level))
    assert np.mean(rates) <= alpha + 3 * np.std(rates) / np.sqrt(len(rates))
    assert np.mean(rates) >= alpha / 3  # it still rejects


@settings(max_examples=60)
@given(
    scores=st.lists(st.integers(-5, 5), min_size=20, max_size=60),
    groups=st.lists(st.integers(0, 3), min_size=60, max_size=60),
    alpha=st.sampled_from([0.05, 0.1, 0.3]),
    new=st.integers(-6, 6),
)
def test_accepted_means_a_p_value_above_alpha_within_the_class_or_the_pool(
    scores: list[int], groups: list[int], alpha: float, new: int
) -> None:
    ascending = np.sort(np.array(scores, np.float32))
    labels = np.array(groups[: len(scores)])
    for label, own in group_by_class(ascending, labels, alpha).items():
        assert label == POOL or len(own) >= (labels == label).sum()  # its own images, and those of a pool it is in
        exact = Fraction(1 + int((own <= new).sum()), len(own) + 1)
        assert float(p_values(own, torch.tensor([float(new)]))[0]) == pytest.approx(float(exact))
        assert (new >= threshold(own, alpha)) == (exact > Fraction(str(alpha)))


def test_copies_of_calibration_images_count_once() -> None:
    once = features(60, seed=1)
    rows = np.repeat(np.arange(60), 20)
    said = (
        r"1,140 of the 1,200 calibration images are copies of others: the 60 distinct.* the rejection rate over copies"
    )
    with pytest.warns(UserWarning, match=said):
        detector = ENERGY.calibrate(once[rows], 0.1, per_class=True)
    wanted = ENERGY.calibrate(once, 0.1, per_class=True)
    np.testing.assert_allclose(detector.calibration, wanted.calibration, rtol=1e-5)
    np.testing.assert_array_equal(detector.groups, wanted.groups)
    dead = Features.from_arrays(np.zeros((30, 4), np.float32), (np.eye(4, dtype=np.float32), np.zeros(4, np.float32)))
    with pytest.warns(UserWarning, match="all 30 calibration scores are equal"):
        assert len(METHODS["energy"].fit(dead).calibrate(dead, 0.1).calibration) == 30  # zeros are not one image


def test_per_class_detectors_save_and_load(tmp_path) -> None:
    detector = ENERGY.calibrate(features(200, seed=1), 0.1, per_class=True)
    detector.save(tmp_path / "d.safetensors")
    again = Detector.load(tmp_path / "d.safetensors")
    assert again == detector
    assert again != ENERGY.calibrate(features(200, seed=1), 0.1)
    with pytest.raises(InputError, match="p_values\\(scores, classes\\)"):
        detector.p_values(torch.zeros(3))
    with pytest.raises(InputError, match="need the predicted classes"):
        ENERGY.calibrate(np.arange(50.0), per_class=True)


def test_the_rate_allowed_is_the_quantile_of_its_law() -> None:
    # the 5th smallest of 99 uniform scores: Beta(5, 95)
    assert allowed_rate(0.05, 99, 0.01) == pytest.approx(beta.ppf(0.99, 5, 95))
    drawn = np.sort(np.random.default_rng(0).random((4000, 99)), axis=1)[:, 4]
    assert np.mean(drawn > allowed_rate(0.05, 99, 0.1)) == pytest.approx(0.1, abs=0.02)


P_VALUES = st.lists(st.floats(0.001, 1), min_size=1, max_size=30)


@given(P_VALUES, st.sampled_from([0.05, 0.1, 0.3]))
@settings(max_examples=200)
def test_it_is_the_step_up_rule(p_values: list[float], level: float) -> None:
    """The largest k whose k-th smallest p-value is at most level k / m, tried one by one."""
    m, ranked = len(p_values), sorted(p_values)
    k = max((k for k in range(1, m + 1) if ranked[k - 1] * m <= level * k * (1 + 5e-6)), default=0)
    flagged = false_discoveries(p_values, level)
    assert flagged.tolist() == [k > 0 and value <= ranked[k - 1] for value in p_values]


def test_storey_by_hand() -> None:
    # 2 of 4 p-values above 1/2: (1 + 2) / (1/2) = 6 familiar; 0.02 * 6 <= 0.1 * 2
    assert false_discoveries([0.02, 0.02, 0.6, 0.9], 0.1, storey=True).tolist() == [True, True, False, False]
    # none above: 2 of 4 are taken for familiar, and 0.15 * 2 <= 0.1 * 3 flags three; without it 0.15 * 4 > 0.3
    few = [0.01, 0.14, 0.15, 0.45]
    assert false_discoveries(few, 0.1, storey=True).sum() == 3
    assert false_discoveries(few, 0.1).sum() == 1
    assert false_discoveries([0.00666667, *[0.6] * 14], 0.1).sum() == 1  # 2 / 300 as a text file has it


@pytest.mark.parametrize(("m", "level", "n"), [(1000, 0.1, 499), (100, 0.2, 99), (7, 0.1, 9), (1, 0.5, 1000)])
def test_fewest_is_the_border(m: int, level: float, n: int) -> None:
    """With the smallest p-value that n images can give: as many are flagged, one fewer is not."""
    k = fewest_flagged(m, level, n)
    if k <= m:
        values = np.ones(m)
        values[:k] = 1 / (n + 1)
        assert false_discoveries(values, level).sum() == k
    values = np.ones(m)
    values[: min(k - 1, m)] = 1 / (n + 1)
    assert false_discoveries(values, level).sum() == 0


@pytest.mark.parametrize("bad", [[0.0, 0.5], [0.5, 1.5], [np.nan], []])
def test_what_is_no_p_value_is_refused(bad: list[float]) -> None:
    with pytest.raises(InputError, match="p_values|p-values"):
        false_discoveries(bad)


def test_one_step_by_hand() -> None:
    test = RateTest(allowed=0.1, delta=0.01)
    rates = 0.1 * ODDS / (0.9 + 0.1 * ODDS)
    after = test.after([True])
    assert math.exp(after.log_wealth) == pytest.approx(0.5 + 0.5 * np.mean(rates / 0.1))
    quiet = test.after([False])
    assert math.exp(quiet.log_wealth) == pytest.approx(0.5 + 0.5 * np.mean((1 - rates) / 0.9))
    # at the rate allowed the bet is fair, in the first step and after any history
    for history in ([], [True, False, True]):
        base = test.after(history)
        up, down = base.after([True]).log_wealth, base.after([False]).log_wealth
        assert 0.1 * math.exp(up) + 0.9 * math.exp(down) == pytest.approx(math.exp(base.log_wealth))
        assert math.exp(up) > math.exp(down)  # so that a lower rate loses


def test_a_fair_stream_at_the_rate_allowed() -> None:
    rng, delta = np.random.default_rng(1), 0.1
    alarms = [RateTest(0.1, delta).after(rng.random(500) < 0.1).alarm for _ in range(400)]
    assert 0 < np.mean([alarm is not None for alarm in alarms]) <= delta


def test_the_confidence_sequence_covers_at_all_times() -> None:
    rng, missed = np.random.default_rng(4), 0
    for _ in range(100):
        test, ever = RateTest(allowed=0.1, delta=0.1), False
        for block in (rng.random(500) < 0.2).reshape(20, 25):
            test = test.after(block)
            low, high = test.interval()
            assert 0 <= low <= test.rate <= high <= 1
            ever |= not low <= 0.2 <= high
        missed += ever
    assert missed / 100 <= 0.1
    assert high - low < 0.15
    assert RateTest(0.1, 0.1).interval() == (0.0, 1.0)
    assert RateTest(0.1, 0.1).after([False] * 50).interval()[0] == 0.0
    assert RateTest(0.1, 0.1).after([True] * 50).interval()[1] == 1.0
