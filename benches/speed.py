"""Speed of the engine as ratios within one run: against a plain sum, a matrix product and the K-mask loop.

    python benches/speed.py [--quick]

Everything is timed interleaved and reported by medians. 131,072 x 2,048 float32 features (1 GB), 1,000 classes,
2 threads; the K-mask loop of published code is timed on 4,096 rows of 50,000 and scaled (it is linear in rows).
"""

from __future__ import annotations

import itertools
import sys

import numpy as np
import torch

from common import THREADS, WIDTH, made, timed
from oodshape import METHODS, Features, FeatureStats
from oodshape.methods.shapes.optfs import PiecewiseConstant


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


def check(name: str, ratio: float, limit: float, *, at_least: bool = False) -> bool:
    """Print one line; whether the limit is kept."""
    good = ratio >= limit if at_least else ratio <= limit
    print(f"  {name:<50} {ratio:8.2f}x   {'>=' if at_least else '<='} {limit:g}x  {'ok' if good else 'MISSED'}")
    return good


def against_a_sum(rows: int, *, signed: bool) -> bool:
    """V, the statistics and E beside one pass over the same memory and one matrix product."""
    data = made(rows, signed=signed)
    z, transposed = torch.from_numpy(data._values), data.head.weight.T.contiguous()
    v, e = (METHODS[name].fit(data) for name in ("optfs-v", "optfs-e"))
    seconds = timed(
        {
            "sum": lambda: z.sum(),
            "v": lambda: v.score(data),
            "statistics": lambda: FeatureStats.of(data),
            "with weights": lambda: FeatureStats.of(data, weights=True),
        },
        rounds=15,
    )
    seconds |= timed(
        {
            "energy": lambda: torch.logsumexp(torch.addmm(data.head.bias, z, transposed), dim=1),
            "e": lambda: e.score(data),
        },
        rounds=3,
    )
    kind = "signed" if signed else "ReLU"
    print(f"{rows:,} x {WIDTH:,} float32, {kind} features; one sum takes {seconds['sum']:.3f} s")
    kept = check("V, predictions stored / sum", seconds["v"] / seconds["sum"], 3)
    kept &= check("statistics / sum", seconds["statistics"] / seconds["sum"], 10)
    print(f"  {'statistics with weights / sum':<50} {seconds['with weights'] / seconds['sum']:8.2f}x")
    return kept & check("E / logsumexp(z @ W.T + b)", seconds["e"] / seconds["energy"], 1.15)


def against_the_mask_loop(rows: int, sample: int) -> bool:
    """Fit and V beside a loop over K = 100 masks."""
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
    loop = {name: seconds * rows / sample for name, seconds in loop.items()}
    print(f"K = 100 masks, {rows:,} rows (the loop timed on {sample:,} and scaled), predictions stored")
    print(f"  fit: ours {ours['fit']:.3f} s, loop {loop['fit']:.1f} s")
    print(f"  V:   ours {ours['score']:.3f} s, loop {loop['score']:.1f} s")
    kept = check("fit: K-mask loop / ours", loop["fit"] / ours["fit"], 100, at_least=True)
    return kept & check("V: K-mask loop / ours", loop["score"] / ours["score"], 500, at_least=True)


def main() -> int:
    """Run it all; 0 when every limit is kept."""
    quick = "--quick" in sys.argv
    torch.set_num_threads(THREADS)
    rows = 16_384 if quick else 131_072
    kept = [against_a_sum(rows, signed=signed) for signed in (False, True)]
    kept.append(against_the_mask_loop(50_000, 1024 if quick else 4096))
    return 0 if all(kept) else 1


if __name__ == "__main__":
    sys.exit(main())
