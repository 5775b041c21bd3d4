"""What a method says hangs on the number of threads by rounding only: the bound that docs/guarantees.md states."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from data import arrays
from oodshape import METHODS, Features
from oodshape.methods.fusion import Fusion

BOUND = 1e-5  # of the largest score


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
@pytest.mark.parametrize("name", ["vim", "mds++", "energy", "auto"])
def test_scores_of_one_and_of_four_threads_are_within_the_bound(name: str) -> None:
    z, head = arrays(600, width=128, classes=10)
    test = Features.from_arrays(arrays(200, width=128, classes=10, seed=1)[0], head)
    proxy = Features.from_arrays(np.random.default_rng(0).permuted(z[:200], axis=1), head)
    found, chosen = [], []
    for count in (1, 4):
        torch.set_num_threads(count)
        detector = METHODS[name].fit(Features.from_arrays(z, head), proxy=[proxy])
        found.append(detector.score(test).numpy())
        if isinstance(detector.scorer, Fusion):
            chosen.append([component.name for component in detector.scorer.components])
    assert np.abs(found[0] - found[1]).max() <= BOUND * np.abs(found[0]).max()
    assert all(names == chosen[0] for names in chosen)
