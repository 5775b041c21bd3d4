"""Measure seconds by name over all threads; nested blocks count only for themselves."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager

_lock = threading.Lock()
_seconds: defaultdict[str, float] = defaultdict(float)
_mine = threading.local()


@contextmanager
def timing(name: str) -> Iterator[None]:
    """Measure the seconds of a block, without those of nested blocks."""
    outer = getattr(_mine, "inside", 0.0)
    _mine.inside, begun = 0.0, time.perf_counter()
    try:
        yield
    finally:
        taken = time.perf_counter() - begun
        with _lock:
            _seconds[name] += taken - _mine.inside
        _mine.inside = outer + taken


def take_timings() -> dict[str, float]:
    """Return the seconds so far and reset them."""
    with _lock:
        found = dict(_seconds)
        _seconds.clear()
    return found
