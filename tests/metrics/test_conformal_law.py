"""The promise over 1,000 calibrations of each method: the rejected images follow its exact law, within classes too.

A pool of images that the network was not trained on is split at random into calibration images and fresh ones, again
and again. Whatever the scores are, as long as they differ, the number of rejected fresh images is beta-binomial.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from scipy.stats import betabinom, kstest

from oodshape import METHODS, Classifier, Detector, Features, fit_all
from oodshape.images.digits import digits_sets
from oodshape.images.preprocessing import DIGITS
from oodshape.metrics.conformal import images_needed, rank
from oodshape.networks.zoo import build

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
    panel = Features.from_arrays(np.random.default_rng(0).permuted(rows, axis=1), train.head)
    fitted = fit_all({name: METHODS[name] for name in NAMES}, train, [panel])
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
