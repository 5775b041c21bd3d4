"""Cores, the cache folder, whether the network may be used, and locks between processes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from filelock import lock_descriptor

OFFLINE = "OODSHAPE_OFFLINE"


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def default_cache() -> Path:
    """Return the folder for cached features: $OODSHAPE_CACHE, or oodshape in the user's cache folder."""
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("OODSHAPE_CACHE") or Path(user) / "oodshape")


def is_offline() -> bool:
    """Whether `--offline` or the environment variable OODSHAPE_OFFLINE forbids to use the network."""
    return os.environ.get(OFFLINE, "0") not in ("", "0")


def lock_file(descriptor: int, waiting: Callable[[], None]) -> None:
    """Lock an open file until it is closed or the process ends; `waiting` is called before a wait."""
    if not lock_descriptor(descriptor, blocking=False):
        waiting()
        lock_descriptor(descriptor)
