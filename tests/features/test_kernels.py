"""The compiled loops: the same everywhere, compiled anew when edited, and made of vectors."""

from __future__ import annotations

import ast
import json
import os
import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

import oodshape
from oodshape.features import kernels, sum_kernels
from oodshape.methods.shapes.pieces import Grid, PiecewiseConstant

FILE = Path(kernels.__file__)
PACKAGE = Path(oodshape.__file__).parent
LOOPS = {
    name: loop for module in (kernels, sum_kernels) for name, loop in vars(module).items() if hasattr(loop, "py_func")
}
FILES = {Path(loop.py_func.__code__.co_filename) for loop in LOOPS.values()}


def run(code: str, *arguments: object, **settings: str) -> str:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    done = subprocess.run(command, env=os.environ | settings, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_only_two_files_hold_compiled_loops() -> None:
    """Numba looks at the file of a loop alone: what it calls must not lie elsewhere."""
    assert len(FILES) == 2
    for path in PACKAGE.rglob("*.py"):
        imported = {
            name.split(".")[0]
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, (ast.Import, ast.ImportFrom))
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        }
        assert path in FILES or not imported & {"numba", "llvmlite"}, path


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_a_loop_uses_nothing_of_another_file(name: str) -> None:
    function = LOOPS[name].py_func
    tree = ast.parse(Path(function.__code__.co_filename).read_text())
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        own |= {part.id for target in targets if target for part in ast.walk(target) if isinstance(part, ast.Name)}
    used = {word for word in function.__code__.co_names if word in function.__globals__}
    assert used <= own | {"np"}, "numba would not see a change of these"


@pytest.fixture
def loops(tmp_path: Path) -> Path:
    """A copy of the file, with a stand-in for torch, whose import takes longer than all the rest."""
    (tmp_path / "torch.py").write_text("Tensor = None\n")
    copy = tmp_path / "loops.py"
    copy.write_text(FILE.read_text())
    return copy


EDITED = """
import numpy as np, loops
z = np.full((1, 3), 2.0, np.float32)
table, sums, limits = np.zeros(((1 << 20) + loops.ZEROS, 2)), np.zeros(3), np.zeros(2, np.int32)
loops._tally32_rows(z.view(np.int32), z, np.zeros(1, np.int64), z, True, table, sums, limits, 0, 1)
print(table.sum(axis=0).tolist(), limits[1] >> 23)
"""


def test_an_edit_takes_effect_while_the_cache_stays(loops: Path) -> None:
    places = {"PYTHONPATH": str(loops.parent), "NUMBA_CACHE_DIR": str(loops.parent / "cache")}
    assert run(EDITED, **places) == "[3.0, 12.0] 128\n"
    edits = {"builder.fadd(": "builder.fsub(", "np.int32(bits & np.int32(MAGNITUDE32))": "np.int32(255 << 23)"}
    for old, new in edits.items():  # in what writes the instruction, and in a helper
        assert FILE.read_text().count(old) == 1
        loops.write_text(loops.read_text().replace(old, new) + "# of another length: the clock may be coarse\n")
    assert run(EDITED, **places) == "[-3.0, -12.0] 255\n"


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
from oodshape.methods.shapes.pieces import Grid, PiecewiseConstant
rng = np.random.default_rng(0)
z = rng.normal(size=(64, 300)).astype(np.float32)
weight = rng.normal(size=(4, 300)).astype(np.float32)
grid = Grid.between(-1.5, 1.5, 100)
shape = PiecewiseConstant(grid.edges(), np.linspace(-1, 2, 100, dtype=np.float32), (grid.origin, grid.scale))
data = Features.from_arrays(z, (weight, np.zeros(4)), predictions=rng.integers(4, size=64))
stats = FeatureStats.of(data, weights=True)
v = shape.frozen_logits(torch.from_numpy(z), data.predictions, data.head.weight)
np.savez(sys.argv[1], shaped=shape(torch.from_numpy(z)), v=v, **{
    name: getattr(stats, name) for name in ("keys", "counts", "impacts", "weights", "weight_squares", "sums")})
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


ASSEMBLY = """
import json, loops
from numba import types
rows, f4, i8 = types.float32[:, ::1], types.float32, types.int64
theta = (f4, f4, types.float32[::1])
kinds = {
    "_frozen_rows": (rows, types.int64[::1], rows, *theta, types.float32[::1], i8, i8),
    "_scale_rows": (rows, rows, *theta, rows, i8, i8),
    "_tally32_rows": (types.int32[:, ::1], rows, types.int64[::1], rows, types.boolean, types.float64[:, ::1],
                      types.float64[::1], types.int32[::1], i8, i8),
}
for name, kind in kinds.items():
    getattr(loops, name).compile(kind)
print(json.dumps({name: "".join(getattr(loops, name).inspect_asm().values()) for name in kinds}))
"""
AVX2 = {"NUMBA_CPU_NAME": "znver3", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma,+bmi,+bmi2,+sse4.1,+sse4.2,+popcnt,+f16c"}
VECTORS = {
    "_frozen_rows": ["vcvttps2dq"],  # the cells of eight values at once
    "_scale_rows": ["vcvttps2dq"],
    "_tally32_rows": ["vpminsd", "vcvtps2pd"],  # the bins of eight values at once; impacts
}


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="compiles for an x86 processor")
def test_arithmetic_is_compiled_to_vectors(loops: Path) -> None:
    """A guard of speed that no noise can trip: without vectors a loop takes about twice as long."""
    places = {"PYTHONPATH": str(loops.parent), "NUMBA_CACHE_DIR": str(loops.parent / "cache")}
    made = json.loads(run(ASSEMBLY, **places, **AVX2))
    for name, operations in VECTORS.items():
        wide = {line.split()[0] for line in made[name].splitlines() if "%ymm" in line}
        assert set(operations) <= wide, name
