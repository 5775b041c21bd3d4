"""Anonymous memory that fitting on a large file adds: 200,000 x 2,048 float16, memory-mapped.

    python benches/memory.py [--quick]

The limit is 300 MB beyond imports, compiled loops and the head. File pages that the kernel keeps are not counted.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from harness import THREADS, WIDTH, grown, made
from oodshape import METHODS, Features, Head, Method
from oodshape.methods.table import NEWER

ROWS, LIMIT = 200_000, 300


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
    start = time.perf_counter()
    added = grown(lambda: [method.fit(train, panel=panel) for method in methods.values()])
    seconds = time.perf_counter() - start
    print(f"{name} ({len(methods)}) fitted on {rows:,} x {WIDTH:,} float16 (memory-mapped) in {seconds:.1f} s")
    print(f"  anonymous memory grew by {added:.0f} MB at most   <= {LIMIT} MB  {'ok' if added <= LIMIT else 'MISSED'}")
    return added <= LIMIT


if __name__ == "__main__":
    sys.exit(main())
