"""Where the time goes: seconds by name, over all threads; what is inside something else counts for itself alone."""

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
    """Count the seconds of this block, without those of blocks inside it."""
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
    """The seconds so far, and none from now on."""
    with _lock:
        found = dict(_seconds)
        _seconds.clear()
    return found
