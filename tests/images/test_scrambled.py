"""Scrambled images: what is kept, what is drawn, what identifies a set."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from oodshape.images.datasets.synthetic import Scrambled, scramble
from oodshape.images.sources.image_set import ArraySet, Subset


def images(shape: tuple[int, ...] = (24, 25, 3), n: int = 4) -> ArraySet:
    return ArraySet("some", np.random.default_rng(0).integers(60, 190, (n, *shape)).astype(np.uint8))


@pytest.mark.parametrize("shape", [(24, 24), (24, 25, 3), (17, 9, 3)])
def test_scrambling_keeps_the_spectrum_and_the_mean(shape: tuple[int, ...]) -> None:
    image = images(shape)[1].astype(float)
    made = scramble(image, np.random.RandomState(3))
    before, after = (np.abs(np.fft.fft2(x, axes=(0, 1))) for x in (image, made))
    np.testing.assert_allclose(after, before, rtol=1e-7, atol=1e-7)
    np.testing.assert_allclose(made.mean(axis=(0, 1)), image.mean(axis=(0, 1)))
    assert abs(np.corrcoef(made.flat, image.flat)[0, 1]) < 0.35
    assert Scrambled(images(shape))[1].mean() == pytest.approx(image.mean(), abs=3)


def test_all_channels_get_the_same_phases() -> None:
    gray = images((20, 20)).images
    colour = ArraySet("colour", np.repeat(gray[..., None], 3, axis=3))
    made = Scrambled(colour)[2]
    assert np.array_equal(made[..., 0], made[..., 2])
    one, three = (scramble(part, np.random.RandomState(5)) for part in (gray[2], colour.images[2]))
    np.testing.assert_allclose(three, np.repeat(one[..., None], 3, axis=2), atol=1e-9)


def test_sets_are_seeded_and_know_what_they_are_made_from() -> None:
    base = images()
    made, again, other = Scrambled(base), Scrambled(images()), Scrambled(base, seed=1)
    assert made.fingerprint == again.fingerprint
    assert len({made.fingerprint, other.fingerprint, Scrambled(images(n=3)).fingerprint, base.fingerprint}) == 4
    assert np.array_equal(made[2], again[2])
    assert np.array_equal(made[2], pickle.loads(pickle.dumps(made))[2])
    assert np.array_equal(Scrambled(Subset(base, [3, 2]))[1], made[2])  # whatever its number
    assert not np.array_equal(made[2], other[2])
    assert not np.array_equal(made[2], made[1])
    _ = made.labels
    assert made.fingerprint == again.fingerprint
    with pytest.raises(IndexError):
        made[4]
