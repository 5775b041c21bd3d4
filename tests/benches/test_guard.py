"""No compiled loop has become much slower, and no score takes more products; a slower one would be found."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

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
