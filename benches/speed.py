"""Speed of the engine as ratios within one run: against a plain sum, a matrix product and the K-mask loop.

    python benches/speed.py [--quick] [--json FILE]

Everything is timed in interleaved rounds; a ratio is the median over the rounds, with its quartiles.
131,072 x 2,048 float32 features (1 GB), 1,000 classes, 2 threads; the K-mask loop of published code is timed on
4,096 rows of 50,000 and scaled (it is linear in rows).
"""

from __future__ import annotations

import itertools
import sys
from functools import partial

import numpy as np
import torch
from llvmlite.binding import get_host_cpu_name as host_processor
from numba import njit

from harness import THREADS, WIDTH, Ratio, check, made, timed, write_checked
from oodshape import METHODS, Features, FeatureStats
from oodshape.features import kernels
from oodshape.features.training_sums import Sums
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.methods.training_set import Training


def mask_fit(z: np.ndarray, classes: np.ndarray, weight: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """The impacts as published code computes them: a mask over all features for each interval."""
    contribution = weight[classes] * z
    masks = ((z >= a) & (z < b) for a, b in itertools.pairwise(edges))
    return np.array([np.mean(np.sum(mask * contribution, axis=1)) for mask in masks])


def mask_score(z: torch.Tensor, classes: torch.Tensor, weight: torch.Tensor, shape: PiecewiseConstant) -> torch.Tensor:
    """The V score as published code computes it."""
    shaped = torch.zeros_like(z)
    edges, theta = shape.edges.tolist(), shape.theta.tolist()
    for a, b, t in zip(edges[:-1], edges[1:], theta, strict=True):
        shaped += ((z >= a) & (z < b)) * z * t
    return (weight[classes] * shaped).sum(dim=1)


def against_a_sum(rows: int, *, signed: bool) -> bool:
    """V, the statistics and E next to one pass over the same memory and one matrix product."""
    data = made(rows, signed=signed)
    z, transposed = torch.from_numpy(data._values), data.head.weight.T.contiguous()
    v, e = (METHODS[name].fit(data) for name in ("optfs-v", "optfs-e"))
    read = timed(
        {
            "sum": lambda: z.sum(),
            "v": lambda: v.score(data),
            "statistics": lambda: FeatureStats.of(data),
        },
        rounds=15,
    )
    recipe, fresh = METHODS["optfs-v"], partial(Features, data._values, data.head, None, data.predictions)
    fits = timed(
        {
            "exact": lambda: recipe.fit(fresh()),
            "limits": lambda: recipe.shape.limits(Training.of(fresh())),
            "histogram": lambda: recipe.fit(Sums.of(fresh(), recipe.needs)),
        },
        rounds=9,
    )
    product = timed(
        {
            "energy": lambda: torch.logsumexp(torch.addmm(data.head.bias, z, transposed), dim=1),
            "e": lambda: e.score(data),
        },
        rounds=5,
    )
    kind = "signed" if signed else "ReLU"
    print(f"{rows:,} x {WIDTH:,} float32, {kind} features; one sum takes {read.wall('sum'):.3f} s")
    kept = check(f"V, predictions stored / sum, {kind}", read.ratio("v", "sum"), 4)
    kept &= check(f"statistics / sum, {kind}", read.ratio("statistics", "sum"), 20)
    exact, limits = (fits.ratio(name, "histogram", cpu=True) for name in ("exact", "limits"))
    where = f"interval bounds {limits.median:.2f}, sums in intervals {exact.median - limits.median:.2f}"
    kept &= check(f"exact OptFS / histogram, CPU, {kind}", exact, 1.3, note=where)
    kept &= check(f"E / logsumexp(z @ W.T + b), CPU, {kind}", product.ratio("e", "energy", cpu=True), 1.1)
    return kept & check(f"E / logsumexp(z @ W.T + b), wall, {kind}", product.ratio("e", "energy"), 1.1)


def a_pair_of_adds() -> None:
    """What adding to two neighbours at once saves in the statistics, on the processor at hand."""
    rng = np.random.default_rng(0)
    places = 2 * rng.integers(1 << 16, size=1 << 22).astype(np.uint32)  # a table of 1 MB, as the values of features use
    table = np.zeros(1 << 17)
    took = timed({"pair": lambda: _pairs(table, places), "two": lambda: _twos(table, places)}, rounds=15)
    print(f"{host_processor()}: two adds / a pair of adds {took.ratio('two', 'pair', cpu=True)}")


@njit(nogil=True)
def _pairs(table, places):  # type: ignore[no-untyped-def]
    for j in range(len(places)):
        kernels._add_pair(table, places[j], 1.0, 2.0)


@njit(nogil=True)
def _twos(table, places):  # type: ignore[no-untyped-def]
    for j in range(len(places)):
        place = np.uint64(places[j])
        table[place] += 1.0
        table[place + np.uint64(1)] += 2.0


def against_the_mask_loop(rows: int, sample: int) -> bool:
    """Fit and V next to a loop over K = 100 masks."""
    data = made(rows, signed=False)
    recipe = METHODS["optfs-v"]
    detector = recipe.fit(data)
    z, classes, weight = data._values[:sample], data.predictions[:sample], data.head.weight
    ours = timed(
        {
            "fit": lambda: recipe.fit(Features(data._values, data.head, None, data.predictions)),
            "score": lambda: detector.score(data),
        },
        rounds=9,
    )
    loop = timed(
        {
            "fit": lambda: mask_fit(z, classes.numpy(), weight.numpy(), detector.shape.edges),
            "score": lambda: mask_score(torch.from_numpy(z), classes, weight, detector.shape),
        },
        rounds=3,
    )
    print(f"K = 100 masks, {rows:,} rows (the loop timed on {sample:,} and scaled), predictions stored")
    kept = True
    for name, limit in (("fit", 100), ("score", 500)):
        slow, fast = loop.wall(name) * rows / sample, ours.wall(name)
        print(f"  {name}: ours {fast:.3f} s, loop {slow:.1f} s")
        kept &= check(f"{name}: K-mask loop / ours", Ratio(slow / fast, slow / fast, slow / fast), limit, at_least=True)
    return kept


def main() -> int:
    """Run it all; 0 when every limit is kept."""
    quick = "--quick" in sys.argv
    torch.set_num_threads(THREADS)
    rows = 16_384 if quick else 131_072
    kept = [against_a_sum(rows, signed=signed) for signed in (False, True)]
    a_pair_of_adds()
    kept.append(against_the_mask_loop(50_000, 1024 if quick else 4096))
    write_checked(rows=rows)
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
