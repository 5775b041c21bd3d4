"""The embedded benchmark's images: real digits and OOD sets, all made from scikit-learn's data or drawn.

Every set holds gray images of 16 x 16 pixels, uint8 in 0..255, black background. `digits.npz` is what
scripts/make_digits.py made. The digits are those of E. Alpaydin and C. Kaynak (UCI, CC BY 4.0); the photographs that
patches were cut from are by danielbuechele and vultilion on Flickr (CC BY 2.0).
"""

from __future__ import annotations

from importlib.resources import as_file, files

import numpy as np

from oodshape.core.files import read_npz
from oodshape.images.datasets.synthetic import KINDS, draw_pixels
from oodshape.images.sources.image_set import ArraySet

NOISE = (400, 16, 16)  # the shape of a set of noise


def load_digits_sets() -> dict[str, ArraySet]:
    """All sets by name: `train` and `test` (digits 0-7), near OOD (digits89, letters), then far OOD.

    >>> {name: len(images) for name, images in load_digits_sets().items()}  # doctest: +NORMALIZE_WHITESPACE
    {'train': 866, 'test': 577, 'digits89': 354, 'letters': 400,
     'photos': 400, 'textures': 400, 'gaussian': 400, 'uniform': 400}
    """
    with as_file(files("oodshape.images.datasets") / "digits.npz") as path:
        arrays = read_npz(path)
    arrays |= {kind: draw_pixels(kind, make_stream(kind), NOISE) for kind in KINDS}
    names = [name for name in arrays if not name.endswith("_labels")]
    return {name: ArraySet(name, arrays[name], arrays.get(f"{name}_labels")) for name in names}  # type: ignore[arg-type]


def make_stream(name: str) -> np.random.RandomState:
    """Make one random stream per set. RandomState, because numpy guarantees that its numbers never change."""
    return np.random.RandomState(np.frombuffer(name.encode(), np.uint8).astype(np.uint32))
