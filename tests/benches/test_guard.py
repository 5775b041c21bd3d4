"""No compiled loop has become much slower, and no score takes more products; a slower one would be found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

BENCHES = Path(__file__).parents[2] / "benches"


@pytest.fixture
def guard(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.syspath_prepend(str(BENCHES))
    import guard

    yield guard
    for name in ("guard", "harness"):
        sys.modules.pop(name, None)


def test_no_loop_is_much_slower_and_one_that_is_would_be_found(guard) -> None:
    tasks = guard.loops()
    slow = "class sums"

    def slower() -> None:
        for _ in range(24):
            tasks[slow]()

    took = guard.measured_loops({**tasks, "slower": slower}, turns=9)
    assert list(guard.crossed(took)) == []
    made_slower = guard.Rounds({**took.seconds, slow: took.seconds["slower"]})
    assert list(guard.crossed(made_slower)) == [slow]


def test_no_score_takes_more_products_and_one_that_does_would_be_found(guard, monkeypatch) -> None:
    assert list(guard.more_products()) == []
    product = guard.Features.from_arrays([[1.0]], ([[1.0]], None)).head.__class__.logits

    def twice(self, z: torch.Tensor) -> torch.Tensor:
        product(self, z)
        return product(self, z)

    monkeypatch.setattr("oodshape.networks.head.Head.logits", twice)
    assert "energy" in list(guard.more_products())
