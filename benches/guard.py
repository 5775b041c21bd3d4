"""A guard against slower code that noise cannot trip: the compiled loops next to a plain loop, and products by number.

    python benches/guard.py

Loops are timed on one thread, on a block that stays in the cache, in turns; of many turns the least CPU time counts, in
units of the least of a plain compiled loop that looks every value up in a table: what else the machine does, its pace
and its processor fall on both. A limit is four times what was measured when it was set, so that it is crossed by a loop
that lost its vectors or its order of memory, and by no machine. Products are counted, not timed: their multiplications
over those of one product with the head are the same everywhere.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator

import numpy as np
import torch
from numba import njit
from torch.utils.flop_counter import FlopCounterMode

from harness import Ratio, Rounds, check, made, timed
from oodshape import METHODS, Features, fit_all
from oodshape.features.feature_stats import RunningStatistics
from oodshape.features.sum_kernels import add_by_class, add_sorted, add_squares
from oodshape.methods.fit_all import score_each

ROWS, TURNS = 256, 25
PLAIN = "a plain loop"
LIMITS = {
    "V": 8.0,
    "statistics, float32": 11.0,
    "statistics, float16": 11.0,
    "class sums": 5.5,
    "squares": 3.0,
    "sorted rows": 16.0,
}
# multiplications over those of one product with the head, where as many images as classes are scored or fitted
PRODUCTS = {"energy": 1.0, "optfs-e": 1.0, "react": 1.0, "dice": 1.0, "she": 1.0, "fdbd": 1.0, "nci": 1.0, "klm": 2.0}
TOGETHER = 1.0  # plain scores of one batch


@njit(nogil=True)
def _plain(z, table):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(z.shape[0]):
        for j in range(z.shape[1]):
            total += table[int(z[i, j] * 64) & 1023] * z[i, j]
    return total


def loops() -> dict[str, Callable[[], object]]:
    """The plain loop and ours, all on the same values."""
    data = made(ROWS, signed=False)
    z, classes, weight = torch.from_numpy(data._values), data.predictions, data.head.weight
    halves, table = z.half(), np.linspace(0, 1, 1024, dtype=np.float32)
    single, half = (RunningStatistics(data.head, 10**6, half=kind) for kind in (False, True))
    sums, row = np.zeros(weight.shape), np.zeros(weight.shape[1])
    v = METHODS["optfs-v"].fit(data)
    return {
        PLAIN: lambda: _plain(data._values, table),
        "V": lambda: v.score(data),
        "statistics, float32": lambda: single.add(z, classes),
        "statistics, float16": lambda: half.add(halves, classes),
        "class sums": lambda: add_by_class(z, classes, sums),
        "squares": lambda: add_squares(z, row),
        "sorted rows": lambda: add_sorted(z, row),
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
        ratio = took.least(name, PLAIN)
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
    fitted = fit_all({name: METHODS[name] for name in PRODUCTS}, train)

    def fresh() -> Features:
        return Features.from_arrays(z, train.head)

    found = {name: products(lambda name=name: fitted[name].score(fresh()), train) for name in PRODUCTS}
    plain = {name: fitted[name] for name in ("energy", "fdbd")}
    for name, value in {
        **found,
        "energy and fdbd together": products(lambda: score_each(plain, fresh()), train),
    }.items():
        if not check(f"{name}: products", Ratio(value, value, value), PRODUCTS.get(name, TOGETHER) + 0.01):
            yield name


def main() -> int:
    """Print both tables; 1 where a limit is crossed."""
    return int(bool([*crossed(measured_loops(loops())), *more_products()]))


if __name__ == "__main__":
    sys.exit(main())
