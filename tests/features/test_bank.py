"""The bank and crossed features hang on who the images are, not on their bits, their order or their parts."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from data import arrays
from oodshape import METHODS, Features, InputError
from oodshape.features import moments as bank
from oodshape.features.moments import Moments
from oodshape.features.proxy import cross_features

NEEDS = frozenset(["bank"])
SIZE = 25


@pytest.fixture(autouse=True, scope="module")
def small_bank():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(bank, "BANK", SIZE)
        yield


def kept(moments: Moments) -> np.ndarray:
    return moments.parts["bank"]


@given(st.data())
@settings(max_examples=60)
def test_any_order_and_any_split_into_parts_give_the_same_bank(data: st.DataObject) -> None:
    n = data.draw(st.integers(2, 80))
    z, head = arrays(n)
    whole = Features.from_arrays(z, head, identities=[f"image {row}" for row in range(n)])
    wanted = Moments.of(whole, NEEDS)
    assert len(kept(wanted)) == min(n, SIZE)
    rows = np.array(data.draw(st.permutations(range(n))))
    cuts = sorted(data.draw(st.sets(st.integers(1, n - 1), max_size=3)))
    merged = [Moments.of(whole[part], NEEDS) for part in np.split(rows, cuts)]
    total = merged[0]
    for part in merged[1:]:
        total = total + part
    assert np.array_equal(kept(total), kept(wanted))
    assert np.array_equal(total.parts["bank_keys"], wanted.parts["bank_keys"])


@pytest.mark.parametrize("name", ["knn", "nnguide", "vim"])
def test_the_last_bits_of_features_choose_nothing(name: str) -> None:
    z, head = arrays(300)
    moved = np.nextafter(z, np.float32(9))
    one, other = (Moments.of(Features.from_arrays(values, head), NEEDS) for values in (z, moved))
    np.testing.assert_allclose(kept(one), kept(other), rtol=1e-6, atol=1e-6)
    test = Features.from_arrays(arrays(50, seed=1)[0], head)
    scores = [METHODS[name].fit(Features.from_arrays(values, head)).score(test) for values in (z, moved)]
    torch.testing.assert_close(scores[0], scores[1], rtol=1e-4, atol=1e-4)


def test_an_image_that_two_parts_share_is_kept_once() -> None:
    z, head = arrays(20)
    one = Features.from_arrays(z, head, identities=np.arange(20))
    again = Features.from_arrays(z.astype(np.float16), head, identities=np.arange(20))  # as another reading
    both = Moments.of(one[:15], NEEDS) + Moments.of(again[10:], NEEDS)
    assert len(kept(both)) == 20
    assert np.array_equal(kept(both), kept(Moments.of(again[10:], NEEDS) + Moments.of(one[:15], NEEDS)))
    doubled = Features.from_arrays(np.repeat(z, 2, axis=0), head, identities=np.repeat(np.arange(20), 2))
    assert np.array_equal(kept(Moments.of(doubled, NEEDS)), kept(Moments.of(one, NEEDS)))


def test_images_that_share_a_number_are_both_kept() -> None:
    """Parts without identities are numbered alike, 0, 1, ...: as in 0.1.0 they add up, whatever the order."""
    z, head = arrays(60)
    a, b, c = (Moments.of(Features.from_arrays(part, head), NEEDS) for part in np.split(z, 3))
    d, e = (Moments.of(Features.from_arrays(part, head), NEEDS) for part in (z[:10], z[10:20]))
    assert {row.tobytes() for row in kept(d + e)} == {row.tobytes() for row in z[:20]}
    total = kept(a + b + c)
    assert len(np.unique(total, axis=0)) == SIZE
    assert np.array_equal(total, kept(c + a + b))
    origin = [next(i for i in range(60) if np.array_equal(z[i], row)) // 20 for row in total]
    assert np.bincount(origin, minlength=3).min() >= SIZE // 3


def test_identities_survive_slices() -> None:
    z, head = arrays(20)
    names = [f"{row}.png" for row in range(20)]
    data = Features.from_arrays(z, head, identities=names)
    for rows in (slice(3, 9), slice(None, None, -2), [4, 2, 2], np.arange(20) % 3 == 0):
        part = data[rows]
        assert np.array_equal(part.identities, data.identities[rows])
        assert np.array_equal(part[1:].identities, data.identities[rows][1:])
        bare = Features.from_arrays(z, head)[rows]
        assert np.array_equal(bare.identities, np.arange(20)[rows])
    with pytest.raises(InputError, match="identities must be 20 texts or whole numbers"):
        Features.from_arrays(z, head, identities=names[:3])


def crossed(z: np.ndarray, head: tuple, size: int = 500, **settings) -> np.ndarray:
    made = cross_features(Features.from_arrays(z, head, **settings), size)
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
