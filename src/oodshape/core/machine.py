"""What this machine offers: cores to work on, memory, a folder for caches, locks between processes."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
from filelock import lock_descriptor


def cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def give_back() -> None:
    """Give memory that was freed back to the system: glibc keeps up to 64 MB of it for itself."""
    if (trim := _trim()) is not None:
        trim(0)


def keep_freed(size: int) -> None:
    """Have freed memory kept for what is allocated next, up to twice `size` bytes (at most 32 MB).

    By itself glibc gives all beyond twice the largest block that was ever freed back to the system: whoever makes
    blocks of some megabytes again and again has every page of them cleared anew, which takes longer than filling
    them. The block that is freed here was never touched, and costs nothing.
    """
    np.empty(min(size, 32 << 20) - (1 << 12), np.uint8)


@cache
def _trim() -> Callable[[int], object] | None:
    if os.name != "posix":
        return None
    trim: Callable[[int], object] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)  # other libraries have none
    return trim


def default_cache() -> Path:
    """The folder for cached features: $OODSHAPE_CACHE, or oodshape in the user's cache folder."""
    user = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(os.environ.get("OODSHAPE_CACHE") or Path(user) / "oodshape")


def lock_file(descriptor: int, waiting: Callable[[], None]) -> None:
    """Lock an open file, until it is closed or the process ends, however it does; `waiting` is called before a wait."""
    if not lock_descriptor(descriptor, blocking=False):
        waiting()
        lock_descriptor(descriptor)
