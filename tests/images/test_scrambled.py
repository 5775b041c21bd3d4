"""Scrambled images: what is kept, what is drawn, what identifies a set."""

from __future__ import annotations

import numpy as np
import PIL.Image
import pytest

from oodshape.core.errors import InputError
from oodshape.images.image_set import ArraySet
from oodshape.images.preprocessing import CIFAR
from oodshape.images.scrambled import Scrambled

SIZES = [(32, 32), (32, 32, 3), (17, 30, 3), (31, 13), (1, 1, 3), (224, 224, 3)]


def images(shape: tuple[int, ...] = (24, 25, 3), n: int = 4) -> ArraySet:
    return ArraySet("some", np.random.default_rng(0).integers(60, 190, (n, *shape)).astype(np.uint8))


def test_the_seed_is_checked() -> None:
    with pytest.raises(InputError, match="seed"):
        Scrambled(images(), seed=-1)


@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "1"])
def test_pictures_of_any_mode(mode: str) -> None:
    class Pictures(ArraySet):
        def __getitem__(self, index: int):
            return PIL.Image.fromarray(self.images[index]).convert(mode)

    made = Scrambled(Pictures("pictures", images((32, 32, 3)).images))
    assert CIFAR(made[0]).shape == (3, 32, 32)
