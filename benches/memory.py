"""Anonymous memory that fitting on a large file adds: 200,000 x 2,048 float16, memory-mapped.

    python benches/memory.py [--quick]

The limit is 300 MB beyond imports, compiled loops and the head. File pages that the kernel keeps are not counted.
"""

from __future__ import annotations

import ctypes
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch

from common import THREADS, WIDTH, made
from oodshape import METHODS, Features, Head, Method
from oodshape.methods.table import NEWER

ROWS, LIMIT = 200_000, 300


def anonymous() -> float:
    """The process's anonymous memory now, in MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon")) / 1024


class Peak(threading.Thread):
    """The largest anonymous memory while the block runs, sampled every millisecond."""

    def __enter__(self) -> Peak:
        """Give freed memory back to the system, then start sampling."""
        ctypes.CDLL("libc.so.6").malloc_trim(0)
        self.start_mb = self.peak_mb = anonymous()
        self.running = True
        self.start()
        return self

    def run(self) -> None:
        """Sample until told to stop."""
        while self.running:
            self.peak_mb = max(self.peak_mb, anonymous())
            time.sleep(0.001)

    def __exit__(self, *_: object) -> None:
        """Stop sampling."""
        self.running = False
        self.join()


def main() -> int:
    """Write the file, warm up, fit; 0 when the limit is kept."""
    rows = 24_000 if "--quick" in sys.argv else ROWS
    torch.set_num_threads(THREADS)
    small = made(4096, signed=True)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "features.npy"
        file = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(rows, WIDTH))
        for first in range(0, rows, len(small)):
            count = min(len(small), rows - first)
            file[first : first + count] = small._values[:count]
        file.flush()
        del file
        head = small.head
        warm = Features.from_arrays(small._values[:2048].astype(np.float16), head)
        panel = [Features.from_arrays(small._values[2048:2548].astype(np.float16), head)]
        for method in METHODS.values():
            method.fit(warm, panel=panel).score(warm)
        del small, warm
        kept = [fitted(name, methods, path, head, panel, rows) for name, methods in groups().items()]
    return 0 if all(kept) else 1


def groups() -> dict[str, dict[str, Method]]:
    """The methods of the paper, those since, and those that choose among all by a panel."""
    paper = {name: method for name, method in METHODS.items() if name not in NEWER and not method.wants_panel}
    return {
        "the paper's methods": paper,
        "methods since the paper": NEWER,
        "auto": {name: method for name, method in METHODS.items() if method.wants_panel},
    }


def fitted(name: str, methods: dict[str, Method], path: Path, head: Head, panel: list[Features], rows: int) -> bool:
    """Fit a group on the file and print one line; whether the limit is kept."""
    train = Features.from_arrays(np.load(path, mmap_mode="r"), head)
    with Peak() as peak:
        start = time.perf_counter()
        for method in methods.values():
            method.fit(train, panel=panel)
        seconds = time.perf_counter() - start
    grown = peak.peak_mb - peak.start_mb
    print(f"{name} ({len(methods)}) fitted on {rows:,} x {WIDTH:,} float16 (memory-mapped) in {seconds:.1f} s")
    print(f"  anonymous memory grew by {grown:.0f} MB at most   <= {LIMIT} MB  {'ok' if grown <= LIMIT else 'MISSED'}")
    return grown <= LIMIT


if __name__ == "__main__":
    sys.exit(main())
