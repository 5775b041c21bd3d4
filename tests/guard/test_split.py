"""Which calibration images select methods and which set the threshold."""

from __future__ import annotations

import numpy as np
import pytest

from data import arrays, features
from oodshape import Auto, Features, Method
from oodshape.guard.fit.split import split_held_out
from oodshape.metrics.conformal import images_needed

TRAIN = features(60)


def identities(data: Features) -> set[int]:
    return set(data.identities.tolist())


def test_half_of_them_select_and_no_image_does_both() -> None:
    held = features(400, seed=1)
    selecting, deciding = split_held_out(TRAIN, held, 0.05)
    assert selecting is not None
    assert not identities(selecting) & identities(deciding)
    assert identities(selecting) | identities(deciding) == identities(held)
    assert len(selecting) == 200
    # by identity: another order of the same images gives the same parts
    turned, _ = split_held_out(TRAIN, held[np.arange(400)[::-1]], 0.05)
    assert turned is not None
    assert identities(turned) == identities(selecting)


@pytest.mark.parametrize(
    ("n", "alpha", "selecting"),
    [(179, 0.05, None), (180, 0.05, 80), (190, 0.05, 90), (200, 0.05, 100), (278, 0.005, None), (279, 0.005, 80)],
)
def test_both_have_enough(n: int, alpha: float, selecting: int | None) -> None:
    assert images_needed(0.005) == 199
    held = features(n, seed=1)
    found, deciding = split_held_out(TRAIN, held, alpha)
    assert (None if found is None else len(found)) == selecting
    assert len(deciding) == n - (selecting or 0)


def test_fewer_select_where_training_images_are_memorised() -> None:
    z, head = arrays(60)
    plain = Features.from_arrays(z, head)
    memorised = Features.from_arrays(z, head, labels=plain.predictions.numpy())
    for n, selecting in ((79, None), (80, 40), (150, 75)):
        assert split_held_out(plain, features(n, seed=1), 0.05)[0] is None
        found = split_held_out(memorised, features(n, seed=1), 0.05)[0]
        assert (None if found is None else len(found)) == selecting


def test_copies_stay_together() -> None:
    z, head = arrays(400, seed=1)
    copied = Features.from_arrays(z, head, identities=np.arange(400) // 2)
    selecting, deciding = split_held_out(TRAIN, copied, 0.05)
    assert selecting is not None
    assert not identities(selecting) & identities(deciding)


def test_no_class_loses_its_own_threshold() -> None:
    z, head = arrays(400, seed=1)
    needed = images_needed(0.05)
    rare = np.where(np.arange(400) < needed + 1, 0, 1)
    held = Features.from_arrays(z, head, predictions=rare)
    assert split_held_out(TRAIN, held, 0.05, per_class=True) == (None, held)
    assert split_held_out(TRAIN, held, 0.05)[0] is not None
    many = Features.from_arrays(z, head, predictions=np.arange(400) % 2)
    selecting, deciding = split_held_out(TRAIN, many, 0.05, per_class=True)
    assert selecting is not None
    assert np.unique(deciding.predictions, return_counts=True)[1].min() >= needed


def test_the_guarantee_holds_over_refits() -> None:
    """1,000 refits with other calibration images: mean rejection <= alpha, within 3 standard errors."""
    alpha, recipe = 0.1, Method(score=Auto(candidates=("msp", "energy"), fuse=2))
    rates = []
    for seed in range(1, 1001):
        selecting, deciding = split_held_out(TRAIN, features(190, seed=seed), alpha)
        assert selecting is not None
        detector = recipe.fit(TRAIN, held_out=selecting).calibrate(deciding, alpha)
        fresh = features(100, seed=10_000 + seed)
        rates.append(1 - float(detector.decide(fresh).accepted.double().mean()))
    error = 3 * np.std(rates) / np.sqrt(len(rates))
    assert alpha - 0.01 < np.mean(rates) + error  # the threshold is not merely low
    assert np.mean(rates) - error <= alpha
    assert error < 0.006
