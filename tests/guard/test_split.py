"""Which held-out images choose methods and which set the threshold."""

from __future__ import annotations

import numpy as np
import pytest

from data import arrays, features
from oodshape import Features
from oodshape.guard.fit import split
from oodshape.metrics.conformal import images_needed


def labelled(n: int, *, accuracy: float = 1.0, seed: int = 0) -> Features:
    z, head = arrays(n, seed=seed)
    labels = Features.from_arrays(z, head).predictions.numpy().copy()
    labels[: round((1 - accuracy) * n)] += 1
    return Features.from_arrays(z, head, labels=labels)


def identities(data: Features) -> set[int]:
    return set(data.identities.tolist())


def test_where_training_images_are_known_by_heart_others_choose() -> None:
    held = features(400, seed=1)
    choosing, deciding = split.split_held_out(labelled(300), held, 0.05)
    assert choosing is not None
    assert not identities(choosing) & identities(deciding)
    assert identities(choosing) | identities(deciding) == identities(held)
    assert 150 < len(choosing) < 250
    # by identity: another order of the same images gives the same parts
    turned, _ = split.split_held_out(labelled(300), held[np.arange(400)[::-1]], 0.05)
    assert turned is not None
    assert identities(turned) == identities(choosing)


@pytest.mark.parametrize(
    "train",
    [labelled(300, accuracy=0.95), features(300)],
    ids=["accuracy 0.95", "no labels"],
)
def test_otherwise_all_set_the_threshold(train: Features) -> None:
    held = features(400, seed=1)
    assert split.split_held_out(train, held, 0.05) == (None, held)


def test_the_threshold_keeps_what_it_needs() -> None:
    train = labelled(300)
    for n, alpha in ((60, 0.05), (110, 0.01)):  # too few to choose by; 99 must remain for a threshold of 1 %
        held = features(n, seed=1)
        assert split.split_held_out(train, held, alpha) == (None, held)
    held = features(400, seed=1)
    assert split.split_held_out(train, held, 0.01)[0] is not None


def test_no_class_loses_its_own_threshold() -> None:
    train = labelled(300)
    z, head = arrays(400, seed=1)
    needed = images_needed(0.05)
    rare = np.where(np.arange(400) < needed + 1, 0, 1)
    held = Features.from_arrays(z, head, predictions=rare)
    assert split.split_held_out(train, held, 0.05, per_class=True) == (None, held)
    assert split.split_held_out(train, held, 0.05)[0] is not None
    many = Features.from_arrays(z, head, predictions=np.arange(400) % 2)
    choosing, deciding = split.split_held_out(train, many, 0.05, per_class=True)
    assert choosing is not None
    assert np.unique(deciding.predictions, return_counts=True)[1].min() >= needed
