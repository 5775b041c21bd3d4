"""Crossed features: pairs by identity, different classes, fair coins; any order, any machine, local changes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data import arrays
from oodshape import Features, InputError
from oodshape.features.proxy import crossed_features


def crossed(z: np.ndarray, head: tuple, size: int = 500, **settings) -> np.ndarray:
    made = crossed_features(Features.from_arrays(z, head, **settings), size)
    return torch.cat([raw for _, raw in made.chunks()]).numpy()


def numbered(n: int, width: int = 40) -> tuple[np.ndarray, tuple]:
    """Features that say of which row they are, so that parents can be read off the result."""
    _, head = arrays(1, width=width)
    return np.repeat(np.arange(n, dtype=np.float32)[:, None], width, axis=1), head


@pytest.mark.parametrize("n", [30, 700])
def test_each_has_two_parents_of_different_classes_by_fair_coins(n: int) -> None:
    z, head = numbered(n)
    classes = np.arange(n) % 7
    made = crossed(z, head, predictions=classes)
    assert made.shape == (500, 40)
    pairs = [np.unique(row).astype(int) for row in made]
    assert all(len(pair) == 2 and classes[pair[0]] != classes[pair[1]] for pair in pairs)
    assert len({tuple(pair) for pair in pairs}) > 250
    assert np.mean(made == made.min(axis=1, keepdims=True)) == pytest.approx(0.5, abs=0.02)
    assert np.abs((made == made.min(axis=1, keepdims=True)).mean(axis=0) - 0.5).max() < 0.12  # for every feature


def test_any_order_of_the_images_gives_the_same() -> None:
    z, head = numbered(200)
    classes = np.arange(200) % 7
    rows = np.random.default_rng(0).permutation(200)
    turned = crossed(z[rows], head, predictions=classes[rows], identities=rows)
    assert np.array_equal(turned, crossed(z, head, predictions=classes))


def test_a_flipped_prediction_changes_only_the_pairs_of_its_image() -> None:
    z, head = numbered(200)
    classes = np.arange(200) % 7
    before, most = crossed(z, head, predictions=classes), 0
    for other in range(7):
        flipped = np.where(np.arange(200) == 11, other, classes)
        after = crossed(z, head, predictions=flipped)
        changed = np.flatnonzero((before != after).any(axis=1))
        most = max(most, len(changed))
        assert all(11 in before[row] or 11 in after[row] for row in changed)
    assert 0 < most < 10


def test_one_predicted_class_is_refused() -> None:
    z, head = arrays(20)
    with pytest.raises(InputError, match="all 20 images to select by have the same predicted class"):
        crossed(z, head, predictions=np.zeros(20, int))
