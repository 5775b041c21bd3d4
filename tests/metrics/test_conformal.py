"""The promise of a threshold, against its exact law; thresholds per class."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, betabinom, binom, chisquare

from data import features
from oodshape import METHODS, Detector, Features, InputError
from oodshape.metrics.conformal import (
    allowed_rate,
    by_class,
    images_needed,
    p_values,
    rank,
    rejected_count,
    rejected_share,
    threshold,
)

ENERGY = METHODS["energy"].fit(features())


def test_the_fewest_images_by_hand() -> None:
    assert [images_needed(alpha) for alpha in (0.05, 0.1, 0.01, 0.5, 0.3)] == [19, 9, 99, 1, 3]
    for alpha in (0.05, 0.3, 0.07):
        assert rank(images_needed(alpha), alpha) == 1
        assert rank(images_needed(alpha) - 1, alpha) == 0


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
    low, high = rejected_count(n, alpha, fresh)
    assert np.mean((counts < low) | (counts > high)) <= 0.01 + 3 * np.sqrt(0.01 / runs)
    assert law.cdf(low - 1) <= 0.005 < law.cdf(low)
    assert law.sf(high) <= 0.005 < law.sf(high - 1)
    shares = rejected_share(n, alpha)
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
    assert np.all(np.abs(own[:3] - 0.09) < 0.025), own
    assert pooled[0] > 0.15  # one threshold for all rejects mostly the class with low scores
    assert pooled[1] < 0.02


def test_classes_with_too_few_images_share_the_threshold_of_all() -> None:
    held_out = mixed(300, 1)
    detector = METHODS["mls"].fit(mixed(200, 0)).calibrate(held_out, 0.1, per_class=True)
    counts = np.bincount(held_out.predictions.numpy(), minlength=4)
    assert counts[3] < images_needed(0.1) <= counts[2]
    assert sorted(detector.own_scores) == [0, 1, 2]
    pooled = METHODS["mls"].fit(mixed(200, 0)).calibrate(held_out, 0.1)
    assert detector.threshold == pooled.threshold == float(detector.thresholds[3])
    assert torch.equal(pooled.thresholds, torch.full((4,), pooled.threshold))
    scores = detector.score(held_out).numpy()
    for label in range(3):
        mine = np.sort(scores[held_out.predictions.numpy() == label])
        assert float(detector.thresholds[label]) == mine[rank(len(mine), 0.1) - 1]


@settings(max_examples=60)
@given(
    scores=st.lists(st.integers(-5, 5), min_size=20, max_size=60),
    groups=st.lists(st.integers(0, 3), min_size=60, max_size=60),
    alpha=st.sampled_from([0.05, 0.1, 0.3]),
    new=st.integers(-6, 6),
)
def test_accepted_means_a_p_value_above_alpha_within_the_class(
    scores: list[int], groups: list[int], alpha: float, new: int
) -> None:
    ascending = np.sort(np.array(scores, np.float32))
    labels = np.array(groups[: len(scores)])
    for label, own in by_class(ascending, labels, alpha).items():
        assert np.array_equal(own, ascending[labels == label])
        exact = Fraction(1 + int((own <= new).sum()), len(own) + 1)
        assert float(p_values(own, torch.tensor([float(new)]))[0]) == pytest.approx(float(exact))
        assert (new >= threshold(own, alpha)) == (exact > Fraction(str(alpha)))
    enough = {label for label in labels.tolist() if (labels == label).sum() >= images_needed(alpha)}
    assert set(by_class(ascending, labels, alpha)) == enough


def test_per_class_detectors_save_and_load(tmp_path) -> None:
    detector = ENERGY.calibrate(features(200, seed=1), 0.1, per_class=True)
    detector.save(tmp_path / "d.safetensors")
    again = Detector.load(tmp_path / "d.safetensors")
    assert again == detector
    assert again != ENERGY.calibrate(features(200, seed=1), 0.1)
    fresh = features(50, seed=2)
    for ours, theirs in zip(detector.decide(fresh), again.decide(fresh), strict=True):
        assert torch.equal(ours, theirs)
    with pytest.raises(InputError, match="p_values\\(scores, classes\\)"):
        detector.p_values(torch.zeros(3))
    with pytest.raises(InputError, match="need the predicted classes"):
        ENERGY.calibrate(np.arange(50.0), per_class=True)


def test_the_rate_allowed_is_the_quantile_of_its_law() -> None:
    # the 5th smallest of 99 uniform scores: Beta(5, 95)
    assert allowed_rate(0.05, 99, 0.01) == pytest.approx(beta.ppf(0.99, 5, 95))
    drawn = np.sort(np.random.default_rng(0).random((4000, 99)), axis=1)[:, 4]
    assert np.mean(drawn > allowed_rate(0.05, 99, 0.1)) == pytest.approx(0.1, abs=0.02)
