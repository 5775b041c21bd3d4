"""What the benchmarks share: data with a head that means something, interleaved rounds, ratios, memory.

A ratio is taken within each round, so that what else the machine does falls on both sides; its spread is printed.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from llvmlite.binding import get_host_cpu_name as host_processor
from numpy.typing import NDArray

from oodshape import Features, Head

WIDTH, CLASSES, THREADS = 2048, 1000, 2
Tasks = Mapping[str, Callable[[], object]]


class Ratio(NamedTuple):
    """The median over the rounds, and the quartiles."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """The median, then the quartiles."""
        return f"{self.median:8.2f}x [{self.low:.2f}..{self.high:.2f}]"


@dataclass(frozen=True)
class Rounds:
    """What each task took in every round, wall and CPU seconds."""

    seconds: dict[str, NDArray[np.float64]]  # [rounds, 2]

    def wall(self, name: str) -> float:
        """The median wall seconds of a task."""
        return float(np.median(self.seconds[name][:, 0]))

    def cpu(self, name: str) -> float:
        """The median CPU seconds of a task, which hardly mind a busy machine."""
        return float(np.median(self.seconds[name][:, 1]))

    def ratio(self, name: str, unit: str, *, cpu: bool = False) -> Ratio:
        """A task's time over that of another, round by round."""
        ratios = self.seconds[name][:, int(cpu)] / self.seconds[unit][:, int(cpu)]
        return Ratio(*(float(np.quantile(ratios, share)) for share in (0.5, 0.25, 0.75)))

    def least(self, name: str, unit: str) -> float:
        """The least CPU time of a task over that of another: what else the machine does can only add to both."""
        return float(self.seconds[name][:, 1].min() / self.seconds[unit][:, 1].min())


now = time.perf_counter


def timed(tasks: Tasks, rounds: int) -> Rounds:
    """All tasks run once per round after one warm-up, every other round in the opposite order."""
    for task in tasks.values():
        task()
    seconds: dict[str, list[NDArray[np.float64]]] = {name: [] for name in tasks}
    for number in range(rounds):
        for name in list(tasks)[:: -1 if number % 2 else 1]:
            seconds[name].append(timed_once(tasks[name]))
    return Rounds({name: np.array(pairs) for name, pairs in seconds.items()})


def timed_once(task: Callable[[], object]) -> NDArray[np.float64]:
    """Wall and CPU seconds of one run."""
    wall, cpu = time.perf_counter(), time.process_time()
    task()
    return np.array([time.perf_counter() - wall, time.process_time() - cpu])


CHECKED: list[dict[str, Any]] = []  # every line that was printed, for `write_checked`


def check(name: str, ratio: Ratio, limit: float, *, at_least: bool = False, note: str = "") -> bool:
    """Print one line and keep it; whether the limit is kept."""
    good = ratio.median >= limit if at_least else ratio.median <= limit
    values = {key: round(value, 3) for key, value in ratio._asdict().items()}
    CHECKED.append({"name": name, **values, "limit": limit, "at_least": at_least, "kept": bool(good), "note": note})
    print(f"  {name:<40} {ratio!s:<26}  {'>=' if at_least else '<='} {limit:g}x  {'ok' if good else 'MISSED'}")
    return good


def write_checked(**more: Any) -> None:
    """Write what was checked to the file after `--json`, if one is given, and where it was measured."""
    if "--json" not in sys.argv:
        return
    path = Path(sys.argv[sys.argv.index("--json") + 1])
    about = {"processor": host_processor(), "threads": THREADS, "load": round(os.getloadavg()[1], 1)}
    path.write_text(json.dumps({**about, **more, "lines": CHECKED}, indent=1) + "\n")


class Peak(threading.Thread):
    """The largest anonymous memory while the block runs, sampled every five milliseconds.

    `own_seconds` is the CPU time that sampling took, which is no part of what the block did.
    """

    def __enter__(self) -> Peak:
        """Give freed memory back to the system, then start sampling."""
        _give_back()
        self.start_mb = self.peak_mb = anonymous()
        self.running, self.own_seconds = True, 0.0
        self.start()
        return self

    def run(self) -> None:
        """Sample until told to stop."""
        while self.running:
            self.peak_mb = max(self.peak_mb, anonymous())
            self.own_seconds = time.thread_time()
            time.sleep(0.005)

    def __exit__(self, *_: object) -> None:
        """Stop sampling."""
        self.running = False
        self.join()


def _give_back() -> None:
    """Give memory that was freed back to the system, where the C library can: glibc keeps up to 64 MB of it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def anonymous() -> float:
    """The process's anonymous memory now, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


def grown(task: Callable[[], Any]) -> float:
    """The anonymous memory that a task adds at its peak, in MB."""
    return measured(task)[1]


def measured(task: Callable[[], Any]) -> tuple[NDArray[np.float64], float]:
    """(wall and CPU seconds of one run, the anonymous memory that it adds at its peak in MB)."""
    with Peak() as peak:
        seconds = timed_once(task)
    return seconds - [0.0, peak.own_seconds], peak.peak_mb - peak.start_mb


def made(rows: int, *, signed: bool, seed: int = 0) -> Features:
    """Features around the weights of their class, the classes known."""
    z = np.empty((rows, WIDTH), np.float32)
    weight, classes = filled(z, signed=signed, seed=seed)
    return Features.from_arrays(z, (weight, np.zeros(CLASSES, np.float32)), predictions=classes)


def filled(
    z: NDArray[Any], *, signed: bool, seed: int = 0, classes: NDArray[np.int64] | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """(the weights of a head, classes): the rows of z become features around the weights of their class."""
    rng = np.random.default_rng(seed)
    weight = rng.normal(scale=0.05, size=(CLASSES, WIDTH)).astype(np.float32)
    classes = rng.integers(CLASSES, size=len(z)) if classes is None else classes
    for first in range(0, len(z), 4096):
        part = classes[first : first + 4096]
        block = rng.standard_normal((len(part), WIDTH), dtype=np.float32) * 0.5 + 4 * weight[part]
        z[first : first + 4096] = block if signed else np.maximum(block, 0)
    return weight, classes


def written(path: Path, rows: int) -> Head:
    """The head of features that were written to a file, float16, as after a ReLU."""
    file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(rows, WIDTH))
    weight, _ = filled(file, signed=False)
    file.flush()
    return Head.of((weight, None))
