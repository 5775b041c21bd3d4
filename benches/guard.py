"""A guard against slower code that noise cannot trip: each loop next to a plain one, and products by number.

    python benches/guard.py [--slow NAME]

Loops are timed on one thread, on a block that stays in the cache, in turns; of many turns the least CPU time counts,
over the least of a plain compiled loop, or of numpy, that does the same: what else the machine does, its pace and its
processor fall on both. The limits are in limits.toml: 1.6 times what was measured, so that a loop that takes twice its
time crosses its limit (`--slow` runs one twice and must fail). Products are counted, not timed: their multiplications
over those of one product with the head are the same everywhere.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from numba import njit
from torch.utils.flop_counter import FlopCounterMode

from harness import WIDTH, Ratio, Rounds, check, made, timed
from oodshape import METHODS, Features, fit_all
from oodshape.features.feature_stats import RunningStats
from oodshape.features.sum_kernels import add_by_class, add_sorted, add_squares
from oodshape.methods.fit_all import score_each

ROWS, TURNS = 256, 25
GIVEN = tomllib.loads(Path(__file__).with_name("limits.toml").read_text())
LIMITS: dict[str, float] = GIVEN["loops"]  # times of a plain loop
# multiplications over those of one product with the head, where as many images as classes are scored or fitted
PRODUCTS: dict[str, float] = GIVEN["products"]
PLAIN, TOGETHER = "plain: ", "energy and fdbd"
SUMS = {"reassoc", "nsz", "contract"}


@njit(nogil=True, fastmath=SUMS)
def _shaped(z, classes, weight, origin, scale, table, out):  # type: ignore[no-untyped-def]
    for i in range(z.shape[0]):
        total = np.float32(0.0)
        for j in range(z.shape[1]):
            place = int(min(max((z[i, j] - origin) * scale, np.float32(0.0)), np.float32(len(table) - 1)))
            total += table[place] * z[i, j] * weight[classes[i], j]
        out[i] = total


@njit(nogil=True, fastmath=SUMS)
def _counted(bits, z, classes, weight, table):  # type: ignore[no-untyped-def]
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            place = (bits[i, j] >> 11) + (1 << 20)
            table[place, 0] += 1.0
            table[place, 1] += np.float64(weight[classes[i], j]) * np.float64(z[i, j])


@njit(nogil=True, fastmath=SUMS)
def _by_class(z, classes, total):  # type: ignore[no-untyped-def]
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            total[classes[i], j] += np.float64(z[i, j])


@njit(nogil=True, fastmath=SUMS)
def _squared(z, total):  # type: ignore[no-untyped-def]
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            total[j] += np.float64(z[i, j]) * np.float64(z[i, j])


def loops() -> dict[str, Callable[[], object]]:
    """Our loops and the plain ones, all on the same values."""
    data = made(ROWS, signed=False)
    values, classes, weight = data._values, data.predictions, data.head.weight
    z, table = torch.from_numpy(values), np.linspace(0, 1, 102, dtype=np.float32)
    halves, bits, grid = z.half(), values.view(np.int32), (np.float32(0.0), np.float32(30.0))
    single, half = (RunningStats(data.head, 10**4, half=kind) for kind in (False, True))
    sums, row, out, counts = np.zeros(weight.shape), np.zeros(WIDTH), np.zeros(ROWS, np.float32), np.zeros((1 << 21, 2))
    v, own = METHODS["optfs-v"].fit(data), (values, classes.numpy(), weight.numpy())
    return {
        "V": lambda: v.score(data),
        PLAIN + "V": lambda: _shaped(*own, *grid, table, out),
        "statistics, float32": lambda: single.add(z, classes),
        "statistics, float16": lambda: half.add(halves, classes),
        PLAIN + "statistics": lambda: _counted(bits, *own, counts),
        "class sums": lambda: add_by_class(z, classes, sums),
        PLAIN + "class sums": lambda: _by_class(*own[:2], sums),
        "squares": lambda: add_squares(z, row),
        PLAIN + "squares": lambda: _squared(values, row),
        "sorted rows": lambda: add_sorted(z, row),
        PLAIN + "sorted rows": lambda: np.sort(values, axis=1).sum(axis=0, dtype=np.float64),
        "fit of a bank": lambda: METHODS["knn"].fit(Features.from_arrays(values, data.head)),
        PLAIN + "fit of a bank": lambda: (values / np.linalg.norm(values, axis=1, keepdims=True)).copy(),
    }


def measured_loops(tasks: dict[str, Callable[[], object]], turns: int = TURNS) -> Rounds:
    """The loops in turns, on one thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return timed(tasks, turns)
    finally:
        torch.set_num_threads(before)


def crossed(took: Rounds) -> Iterator[str]:
    """The loops that are slower than their limit; a line for each is printed."""
    for name, limit in LIMITS.items():
        ratio = took.least(name, PLAIN + name.partition(",")[0])
        if not check(name, Ratio(ratio, ratio, ratio), limit):
            yield name


def products(task: Callable[[], object], data: Features) -> float:
    """The multiplications of a task over those of one product of the data with its head."""
    with FlopCounterMode(display=False) as counter:
        task()
    return counter.get_total_flops() / (2 * len(data) * data.head.weight.numel())


def more_products(rows: int = 64, width: int = 48, classes: int = 32) -> Iterator[str]:
    """The methods whose scores take more products than they should; a line for each is printed."""
    rng = np.random.default_rng(0)
    z, head = np.abs(rng.normal(size=(rows, width))).astype(np.float32), rng.normal(size=(classes, width))
    train = Features.from_arrays(z, (head, None))
    names = [name for name in PRODUCTS if name != TOGETHER]
    fitted = fit_all({name: METHODS[name] for name in names}, train)

    def fresh() -> Features:
        return Features.from_arrays(z, train.head)

    found = {name: products(lambda name=name: fitted[name].score(fresh()), train) for name in names}
    plain = {name: fitted[name] for name in ("energy", "fdbd")}
    for name, value in {
        **found,
        TOGETHER: products(lambda: score_each(plain, fresh()), train),
    }.items():
        if not check(f"{name}: products", Ratio(value, value, value), PRODUCTS[name] + 0.01):
            yield name


def main() -> int:
    """Print both tables; 1 where a limit is crossed."""
    tasks = loops()
    for name in sys.argv[sys.argv.index("--slow") + 1 :] if "--slow" in sys.argv else []:
        tasks[name] = lambda once=tasks[name]: (once(), once())
    return int(bool([*crossed(measured_loops(tasks)), *more_products()]))


if __name__ == "__main__":
    sys.exit(main())
