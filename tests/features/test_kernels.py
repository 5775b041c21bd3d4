"""The compiled loops: the same everywhere, compiled anew when edited, and made of vectors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from oodshape.features import kernels
from oodshape.methods.shapes.piecewise import Grid, PiecewiseConstant


def run(code: str, *arguments: object, **settings: str) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("width", [1, kernels.BLOCK - 1, kernels.BLOCK, kernels.BLOCK + 1, 3 * kernels.BLOCK + 5])
def test_whole_blocks_and_what_is_left_of_a_row_are_the_same(width: int) -> None:
    rng = np.random.default_rng(width)
    z = torch.from_numpy(rng.normal(size=(5, width)).astype(np.float32))
    weight, classes = torch.from_numpy(rng.normal(size=(3, width)).astype(np.float32)), torch.tensor([0, 2, 1, 1, 0])
    grid = Grid.between(-1.5, 1.5, 40)
    shape = PiecewiseConstant(grid.edges(), np.linspace(-1, 2, 40, dtype=np.float32), (grid.origin, grid.scale))
    assert torch.equal(shape(z), shape.traced()(z))
    wanted = (shape.traced()(z).double() * weight[classes].double()).sum(dim=1)
    torch.testing.assert_close(shape.frozen_logits(z, classes, weight).double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, kernels.BLOCK])
def test_a_value_that_is_not_finite_reaches_the_sum(value: float, place: int) -> None:
    z = torch.ones(1, kernels.BLOCK + 1)
    z[0, place] = value
    padded = torch.tensor([0.0, 1.0, 0.0])
    assert not torch.isfinite(kernels.frozen_logits(z, torch.tensor([0]), torch.ones_like(z), (0.0, 1.0), padded))[0]


OTHER = """
import sys, numpy as np, torch
from oodshape import Features, FeatureStats
from oodshape.methods.shapes.piecewise import Grid, PiecewiseConstant
rng = np.random.default_rng(0)
z = rng.normal(size=(64, 300)).astype(np.float32)
weight = rng.normal(size=(4, 300)).astype(np.float32)
grid = Grid.between(-1.5, 1.5, 100)
shape = PiecewiseConstant(grid.edges(), np.linspace(-1, 2, 100, dtype=np.float32), (grid.origin, grid.scale))
data = Features.from_arrays(z, (weight, np.zeros(4)), predictions=rng.integers(4, size=64))
stats = FeatureStats.of(data)
v = shape.frozen_logits(torch.from_numpy(z), data.predictions, data.head.weight)
np.savez(sys.argv[1], shaped=shape(torch.from_numpy(z)), v=v, **{
    name: getattr(stats, name) for name in ("keys", "counts", "impacts", "sums")})
"""


def test_a_processor_without_wide_vectors_gives_the_same_bits(tmp_path: Path) -> None:
    made = []
    for name, settings in (("host", {}), ("generic", {"NUMBA_CPU_NAME": "generic"})):
        run(OTHER, tmp_path / f"{name}.npz", **settings)
        made.append(np.load(tmp_path / f"{name}.npz"))
    for name in made[0].files:
        if name == "v":  # a sum in an order of the processor's own
            np.testing.assert_allclose(made[0][name], made[1][name], rtol=1e-5, atol=1e-5)
        else:
            np.testing.assert_array_equal(made[0][name], made[1][name])
