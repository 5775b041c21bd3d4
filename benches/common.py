"""What the benchmarks share: data with a head that means something, and interleaved timing."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable

import numpy as np

from oodshape import Features

WIDTH, CLASSES, THREADS = 2048, 1000, 2


def timed(tasks: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    """Median seconds of each task, all of them run once per round after one warm-up."""
    for task in tasks.values():
        task()
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            start = time.perf_counter()
            task()
            seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in seconds.items()}


def made(rows: int, *, signed: bool, seed: int = 0) -> Features:
    """Features around the weights of their class, the classes known."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(scale=0.05, size=(CLASSES, WIDTH)).astype(np.float32)
    classes = rng.integers(CLASSES, size=rows)
    z = np.empty((rows, WIDTH), np.float32)
    for first in range(0, rows, 4096):
        part = classes[first : first + 4096]
        block = rng.standard_normal((len(part), WIDTH), dtype=np.float32) * 0.5 + 4 * weight[part]
        z[first : first + 4096] = block if signed else np.maximum(block, 0)
    return Features.from_arrays(z, (weight, np.zeros(CLASSES, np.float32)), predictions=classes)
