"""What fitting on a large file costs: 200,000 x 2,048 float16, memory-mapped, 1,000 classes.

    python benches/memory.py [--quick | --imagenet | --rows N] [--threads N] [--json FILE]

The unit is one pass over the file that multiplies by the head, timed before and after each group of methods. Anonymous
memory may grow by 300 MB beyond imports, compiled loops and the head; file pages that the kernel keeps are not counted.
`--imagenet` takes the 1,281,167 images of ImageNet (5.2 GB).
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from harness import THREADS, WIDTH, Ratio, check, made, measured, timed_once, write_checked, written
from oodshape import METHODS, Features, Head, Method, fit_all
from oodshape.features import features, kernels, moments
from oodshape.features.feature_stats import RunningStats
from oodshape.features.sum_kernels import Scatter
from oodshape.methods import auto
from oodshape.methods.scores import mahalanobis

ROWS, QUICK, IMAGENET = 200_000, 24_000, 1_281_167
MEMORY = 300  # MB
LIMITS = {"the paper's methods": 1.2, "all methods but auto": 5.0, "auto": 6.0}  # product passes at ROWS
LIMITS_FEWER = {"the paper's methods": 1.2, "all methods but auto": 8.0, "auto": 9.0}  # at 60,000
# where time goes: the functions of each section, as the code that calls them sees them
SECTIONS: dict[str, list[tuple[Any, str]]] = {
    "head": [(Head, "logits")],
    "pair products": [(Scatter, "_add")],
    "class sums": [(moments, "add_by_class")],
    "squares, lengths": [(moments, "add_squares"), (moments, "row_lengths"), (features, "add_columns")],
    "sorting": [(moments, "add_sorted")],
    "decompositions": [
        *((torch.linalg, name) for name in ("eigh", "eigvalsh", "cholesky_ex", "lstsq")),
        (mahalanobis, "invert_upper"),
    ],
    "histogram": [(RunningStats, "add"), (RunningStats, "result")],
    "finite values": [(kernels, "first_bad_row")],
    "scoring": [(auto, "score_each")],
}


def main() -> int:
    """Write the file, warm up, fit; 0 when the limits are kept."""
    rows = option("--rows", QUICK if "--quick" in sys.argv else IMAGENET if "--imagenet" in sys.argv else ROWS)
    torch.set_num_threads(option("--threads", THREADS))
    warm_up()
    # images without content: the values of each shuffled among its features
    shuffled = np.random.default_rng(0).permuted(made(500, signed=False)._values, axis=1).astype(np.float16)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "features.npy"
        head = written(path, rows)
        proxy = [Features.from_arrays(shuffled, head)]
        print(f"{rows:,} x {WIDTH:,} float16 in a file; the unit is one pass that multiplies by the head")
        kept = []
        for name, methods in groups().items():
            kept.append(fitted(name, methods, path, head, proxy))
            write_checked(rows=rows)  # each time: a run that is stopped has measured something
    return 0 if all(kept) else 1


def option(name: str, default: int) -> int:
    """The number after an option's name."""
    return int(sys.argv[sys.argv.index(name) + 1]) if name in sys.argv else default


def warm_up() -> None:
    """Compile every loop and load every library, on features so narrow that it takes no time."""
    rng = np.random.default_rng(0)
    z, weight = np.maximum(rng.normal(size=(2, 600, 64)), 0).astype(np.float16), rng.normal(size=(16, 64))
    train, proxy = (Features.from_arrays(part, (weight, None)) for part in z)
    for methods in groups().values():
        fit_all(methods, train, [proxy])
    scatter = Scatter(WIDTH)
    scatter.add(torch.ones(64, WIDTH))
    scatter.result()


def groups() -> dict[str, dict[str, Method]]:
    """The methods that learn from the paper's sums, all that need no proxy, and auto."""
    single = {name: method for name, method in METHODS.items() if not method.wants_proxy}
    return {
        "the paper's methods": {name: method for name, method in single.items() if not method.needs},
        "all methods but auto": single,
        "auto": {"auto": METHODS["auto"]},
    }


@contextmanager
def sections() -> Iterator[dict[str, float]]:
    """CPU seconds by section; a section that calls another one does not count it."""
    spent, inner = dict.fromkeys(SECTIONS, 0.0), [0.0]

    def counted(section: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def run(*given: Any, **named: Any) -> Any:
            begun = time.process_time()
            inner.append(0.0)
            try:
                return function(*given, **named)
            finally:
                took = time.process_time() - begun
                spent[section] += took - inner.pop()
                inner[-1] += took

        return run

    patches = [
        patch.object(owner, name, counted(section, getattr(owner, name)))
        for section, functions in SECTIONS.items()
        for owner, name in functions
    ]
    for each in patches:
        each.start()
    try:
        yield spent
    finally:
        for each in patches:
            each.stop()


def fitted(name: str, methods: dict[str, Method], path: Path, head: Head, proxy: list[Features]) -> bool:
    """Fit a group on the file and print two lines; whether the limits are kept."""

    def fresh() -> Features:
        return Features.from_arrays(np.load(path, mmap_mode="r"), head)

    def unit() -> object:
        return fresh().predictions

    def task() -> object:
        return fit_all(methods, fresh(), proxy)

    before = timed_once(unit)
    with sections() as spent:
        seconds, added = measured(task)
    product = (before + timed_once(unit)) / 2
    wall, cpu = seconds / product
    limits = LIMITS if len(fresh()) >= ROWS else LIMITS_FEWER
    where = {**spent, "other": seconds[1] - sum(spent.values())}
    shares = ", ".join(f"{part} {took / product[1]:.2f}" for part, took in where.items() if took > 0.005 * product[1])
    kept = check(f"{name}, CPU time", Ratio(cpu, cpu, cpu), limits[name], note=shares)
    print(f"    CPU passes: {shares}")
    kept &= check(f"{name}, wall time", Ratio(wall, wall, wall), limits[name])
    print(f"    memory grew by {added:.0f} MB  <= {MEMORY} MB  {'ok' if added <= MEMORY else 'MISSED'}", flush=True)
    return kept and bool(added <= MEMORY)


if __name__ == "__main__":
    sys.exit(main())
