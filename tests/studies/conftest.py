"""Small numbers that studies are held to, as arrays and as features."""

from __future__ import annotations

import numpy as np
import pytest

from data import arrays
from oodshape import Features
from small_study import ood_arrays


@pytest.fixture(scope="module")
def small() -> dict:
    """The same numbers as arrays and as float16-exact Features: train, ID, two OOD sets."""
    z, head = arrays(200)
    z, test = z.astype(np.float16), arrays(120, seed=1)[0].astype(np.float16)
    outside = {
        "far": ood_arrays().astype(np.float16),
        "near": arrays(90, seed=5)[0].astype(np.float16) * np.float16(0.5),
    }
    made = {
        "train": Features.from_arrays(z, head),
        "inside": Features.from_arrays(test, head),
        "ood": {name: Features.from_arrays(values, head) for name, values in outside.items()},
    }
    return {"head": head, "z": z, "test": test, "outside": outside, **made}
