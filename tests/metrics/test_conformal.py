"""The promise of a threshold against its exact law, over many calibrations too; thresholds per class."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import beta, betabinom, binom, chisquare, kstest, norm

from data import features
from oodshape import METHODS, Classifier, Detector, Features, InputError, fit_all
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.metrics.conformal import (
    POOL,
    allowed_rate,
    by_class,
    images_needed,
    p_values,
    rank,
    rejected_count,
    rejected_share,
    threshold,
)
from oodshape.networks.zoo import build

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
        assert detector.thresholds[labels].tolist() == [float(mine[rank(len(mine), 0.1) - 1])] * len(labels)
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
@pytest.mark.parametrize("n", [200, 400])
@pytest.mark.parametrize("step", [-3.0, 3.0])
def test_rare_classes_do_not_raise_the_rejection_rate(name: str, n: int, step: float) -> None:
    """Mean rejection over 1,000 calibration sets, overall and by kind of class, with exact rates of normal scores."""
    rng, alpha = np.random.default_rng(0), 0.05
    sizes, shares = zip(*POPULATIONS[name], strict=True)
    law = np.repeat(np.array(shares) / sizes, sizes)
    level = np.repeat(step * np.arange(len(sizes)), sizes)
    rates = []
    for _ in range(1000):
        groups = rng.choice(len(law), size=n, p=law)
        scores = (level[groups] + rng.normal(size=n)).astype(np.float32)
        order = np.argsort(scores)
        found = by_class(scores[order], groups[order], alpha)
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
    for label, own in by_class(ascending, labels, alpha).items():
        assert label == POOL or len(own) >= (labels == label).sum()  # its own images, and those of a pool it is in
        exact = Fraction(1 + int((own <= new).sum()), len(own) + 1)
        assert float(p_values(own, torch.tensor([float(new)]))[0]) == pytest.approx(float(exact))
        assert (new >= threshold(own, alpha)) == (exact > Fraction(str(alpha)))


def test_copies_of_calibration_images_count_once() -> None:
    once = features(60, seed=1)
    rows = np.repeat(np.arange(60), 20)
    with pytest.warns(UserWarning, match="1,140 of the 1,200 calibration images are copies of others: 60 distinct"):
        detector = ENERGY.calibrate(once[rows], 0.1, per_class=True)
    assert detector == ENERGY.calibrate(once, 0.1, per_class=True)
    dead = Features.from_arrays(np.zeros((30, 4), np.float32), (np.eye(4, dtype=np.float32), np.zeros(4, np.float32)))
    with pytest.warns(UserWarning, match="all 30 calibration scores are equal"):
        assert len(METHODS["energy"].fit(dead).calibrate(dead, 0.1).calibration) == 30  # zeros are not one image


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


NAMES = ("energy", "knn", "auto")  # the law is the same for every score
RUNS, ALPHA, SPLIT = 1000, 0.1, 0.5


class Pool(NamedTuple):
    """A fitted method with the scores and predicted classes of images that it has never seen."""

    detector: Detector
    scores: np.ndarray
    classes: np.ndarray


@pytest.fixture(scope="module")
def pools() -> dict[str, Pool]:
    sets, classifier = digits_sets(), Classifier(build("digits-convnet"))
    train, held = (Features.extract(classifier, sets[name], DIGITS) for name in ("train", "test"))
    rows = np.concatenate([chunk.numpy() for _, chunk in train[:200].chunks()])
    proxy = Features.from_arrays(np.random.default_rng(0).permuted(rows, axis=1), train.head)
    fitted = fit_all({name: METHODS[name] for name in NAMES}, train, [proxy])
    classes = held.predictions.numpy()
    return {name: Pool(detector, detector.score(held).numpy(), classes) for name, detector in fitted.items()}


@cache
def law(n: int, fresh: int, alpha: float) -> np.ndarray:
    """[fresh + 2]: the chance of fewer than i rejected among fresh images, after a calibration on n."""
    k = rank(n, alpha)
    return np.append(0.0, betabinom.pmf(np.arange(fresh + 1), fresh, k, n + 1 - k).cumsum())


def places(pool: Pool, *, per_class: bool, alpha: float = ALPHA, taken: float | None = None) -> np.ndarray:
    """Where each number of rejected images lies in its law, 0..1, uniform if it follows it; per class or of all.

    The threshold is taken for another alpha where one is given: for a check that the test can tell.
    """
    rng = np.random.default_rng(0)
    found = []
    for _ in range(RUNS):
        held = rng.permutation(len(pool.scores)) < SPLIT * len(pool.scores)
        order = np.argsort(pool.scores[held], kind="stable")
        ascending, labels = pool.scores[held][order], pool.classes[held][order]
        groups = labels.astype(np.int32) if per_class else None
        detector = replace(pool.detector, calibration=ascending, groups=groups, alpha=taken or alpha)
        limits = detector.limits.numpy()
        rejected = pool.scores[~held] < (limits if len(limits) == 1 else limits[pool.classes[~held]])
        for label in np.unique(labels) if per_class else [None]:
            n = len(labels) if label is None else int((labels == label).sum())
            fresh = rejected if label is None else rejected[pool.classes[~held] == label]
            if n < images_needed(alpha):
                continue  # the class shares the threshold of all, and nothing is promised within it
            low, high = law(n, len(fresh), alpha)[int(fresh.sum()) :][:2]
            found.append(rng.uniform(low, high))
    return np.array(found)


@pytest.mark.parametrize("name", NAMES)
def test_the_promise_holds_for_all_images(name: str, pools: dict[str, Pool]) -> None:
    assert len(np.unique(pools[name].scores)) > 0.99 * len(pools[name].scores)
    assert kstest(places(pools[name], per_class=False), "uniform").pvalue > 0.001


@pytest.mark.parametrize("name", NAMES)
def test_the_promise_holds_within_each_class(name: str, pools: dict[str, Pool]) -> None:
    found = places(pools[name], per_class=True)
    assert len(found) > 4 * RUNS
    # classes of one split hang together a little, so the mean is compared, not every place
    assert abs(found.mean() - 0.5) < 4 * np.sqrt(1 / 12 / RUNS)


def test_a_threshold_for_a_slightly_larger_share_would_be_seen(pools: dict[str, Pool]) -> None:
    assert kstest(places(pools["energy"], per_class=False, taken=0.11), "uniform").pvalue < 1e-6
    found = places(pools["energy"], per_class=True, taken=0.15)
    assert abs(found.mean() - 0.5) > 4 * np.sqrt(1 / 12 / RUNS)


def test_the_decision_is_that_of_the_p_value(pools: dict[str, Pool]) -> None:
    pool = pools["auto"]
    half = len(pool.scores) // 2
    detector = pool.detector.calibrate(pool.scores[:half], ALPHA)
    fresh = torch.from_numpy(pool.scores[half:])
    assert torch.equal(fresh >= detector.threshold, detector.p_values(fresh) > ALPHA)
