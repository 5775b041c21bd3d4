"""The compiled CPU loops, and the same functions in plain torch for every other device.

Each compiled loop works on a range of rows and releases the GIL; `run_over_rows` runs the ranges side by side.
Threads of our own instead of numba's: they may be entered from several threads of a server at once.

Numba compiles a loop again when the file of the loop changes, and looks at no other file: all that a loop calls,
and every constant in it, stands here. Inner loops are short and do one thing, arithmetic or a lookup, because the
compiler makes vectors of the arithmetic only when nothing else stands in the same loop.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import torch
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic
from numpy.typing import NDArray
from torch import Tensor

T = TypeVar("T")
Array = NDArray[Any]

ZEROS = 8  # spare rows for z = 0, so that the many zeros after a ReLU do not wait for one memory cell
MAGNITUDE32 = 0x7FFFFFFF
BLOCK = 128  # values between two loops over the same row: enough for long vectors, few enough for the first cache
FINE, COARSE = 11, 12  # low bits of a float32 that share a bin: few values need finer bins to be as exact
SMALLEST_PARALLEL = 1 << 16  # values; below this a thread costs more than it brings

# reassoc: sums may be vectorised. NaN and infinity keep their meaning.
SUMS = {"reassoc", "nsz", "contract"}

_pool: ThreadPoolExecutor | None = None


def _forget_pool() -> None:
    global _pool
    _pool = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pool)


def run_over_rows(work: Callable[[int, int, int], T], rows: int, width: int) -> list[T]:
    """The results of `work(part, first, last)` for equal ranges of rows, one per torch thread."""
    global _pool
    parts = min(torch.get_num_threads(), max(rows, 1))
    if parts == 1 or rows * width < SMALLEST_PARALLEL:
        return [work(0, 0, rows)]
    if _pool is None:
        _pool = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="oodshape")
    cuts = [rows * part // parts for part in range(parts + 1)]
    futures = [_pool.submit(work, part, cuts[part], cuts[part + 1]) for part in range(parts)]
    return [future.result() for future in futures]


@njit(nogil=True, cache=True)  # no fast maths: stored edges are the exact floats where this changes
def _cell(z, origin, scale, last):  # type: ignore[no-untyped-def]
    position = (z - origin) * scale
    position = position if position > np.float32(0.0) else np.float32(0.0)
    return np.uint32(np.int32(position if position < last else last))


@njit(nogil=True, cache=True, fastmath=SUMS)
def _scale_rows(z, values, origin, scale, padded, out, first, last_row):  # type: ignore[no-untyped-def]
    last = np.float32(len(padded) - 1)
    cells = np.empty(BLOCK, np.uint32)
    blocks = z.shape[1] // BLOCK * BLOCK
    for i in range(first, last_row):
        for start in range(0, blocks, BLOCK):
            for j in range(BLOCK):
                cells[j] = _cell(z[i, start + j], origin, scale, last)
            for j in range(BLOCK):
                out[i, start + j] = padded[cells[j]] * values[i, start + j]
        for j in range(blocks, z.shape[1]):
            out[i, j] = padded[_cell(z[i, j], origin, scale, last)] * values[i, j]


@njit(nogil=True, cache=True, fastmath=SUMS)
def _frozen_rows(z, classes, weight, origin, scale, padded, out, first, last_row):  # type: ignore[no-untyped-def]
    last = np.float32(len(padded) - 1)
    for i in range(first, last_row):
        row, w = z[i], weight[classes[i]]
        total = np.float32(0.0)
        for j in range(len(row)):
            total += padded[_cell(row[j], origin, scale, last)] * row[j] * w[j]
        out[i] = total


def _pair(typing, table, place, first, second):  # type: ignore[no-untyped-def]
    """Add to table[place] and its neighbour at once, which the compiler does not find by itself.

    Two separate adds make the statistics 10 to 15 % slower on AMD's Zen 3 (benches/speed.py shows it for any other).
    """
    del typing, place, first, second
    signature = types.void(table, types.uint32, types.float64, types.float64)

    def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
        data = context.make_array(signature.args[0])(context, builder, args[0]).data
        place = builder.zext(args[1], context.get_value_type(types.intp))
        kind = ir.VectorType(ir.DoubleType(), 2)
        pointer = builder.bitcast(builder.gep(data, [place]), kind.as_pointer())
        pair = ir.Constant(kind, ir.Undefined)
        for lane in (0, 1):
            pair = builder.insert_element(pair, args[2 + lane], ir.Constant(ir.IntType(32), lane))
        builder.store(builder.fadd(builder.load(pointer, align=8), pair), pointer, align=8)
        return context.get_dummy_value()

    return signature, generate


_add_pair: Any = intrinsic(_pair)


@njit(nogil=True, cache=True, fastmath=SUMS)
def _interval_rows(z, classes, weight, origin, scale, out, first, last_row):  # type: ignore[no-untyped-def]
    cells = out.shape[0] - ZEROS
    last, flat = np.float32(cells - 1), out.reshape(-1)
    places, impacts = np.empty(BLOCK, np.uint32), np.empty(BLOCK, np.float64)
    for i in range(first, last_row):
        for start in range(0, z.shape[1], BLOCK):
            row, w = z[i, start : start + BLOCK], weight[classes[i], start : start + BLOCK]
            for j in range(len(row)):
                spare = np.uint32(cells + (j & (ZEROS - 1)))
                cell = spare if row[j] == np.float32(0.0) else _cell(row[j], origin, scale, last)
                places[j] = np.uint32(2) * cell
            for j in range(len(row)):
                impacts[j] = np.float64(w[j]) * np.float64(row[j])
            for j in range(len(row)):
                value = np.float64(row[j])
                _add_pair(flat, places[j], impacts[j], value * value)


@njit(nogil=True, cache=True)
def _take_between(values, low, high, inside, n):  # type: ignore[no-untyped-def]
    for j in range(len(values)):  # without a branch, which would often be predicted wrong
        inside[n] = values[j]
        n += np.int64((values[j] > low) & (values[j] < high))
    return n


@njit(nogil=True, cache=True)
def _bracket_rows(z, low, high, first, last_row):  # type: ignore[no-untyped-def]
    below, at_low, at_high, n = 0, 0, 0, 0
    inside = np.empty(1024, np.float32)
    for i in range(first, last_row):
        for start in range(0, z.shape[1], BLOCK):
            values = z[i, start : start + BLOCK]
            under, to_low, to_high, upper = np.int32(0), np.int32(0), np.int32(0), np.int32(0)
            for j in range(len(values)):
                value = values[j]
                under += np.int32(value < low)
                to_low += np.int32(value <= low)
                to_high += np.int32(value < high)
                upper += np.int32(value == high)
            below, at_low, at_high = below + int(under), at_low + int(to_low - under), at_high + int(upper)
            if to_high > to_low:
                if n + BLOCK > len(inside):
                    larger = np.empty(2 * len(inside), np.float32)
                    larger[:n] = inside[:n]
                    inside = larger
                n = _take_between(values, low, high, inside, n)
    return below, at_low, at_high, inside[:n]


@njit(nogil=True, cache=True)
def _order(bits):  # type: ignore[no-untyped-def]
    """An integer in the order of the floats; -0.0 becomes 0."""
    magnitude, sign = np.int32(bits & np.int32(MAGNITUDE32)), np.int32(bits >> np.int32(31))
    return np.int32(np.int32(magnitude ^ sign) - sign)  # numba counts in 64 bits unless told at every step


@njit(nogil=True, cache=True, fastmath=SUMS)
def _tally_rows(bits, z, classes, weight, coarse, table, sums, limits, first, last_row):  # type: ignore[no-untyped-def]
    width = z.shape[1]
    bins = np.int32(table.shape[0] - ZEROS)
    middle = np.int32(bins // 2)
    flat = table.reshape(-1)
    places = np.empty(width, np.uint32)  # where in the flat table the bin of each value begins
    impacts = np.empty(width, np.float64)
    low, high = limits[0], limits[1]
    for i in range(first, last_row):
        w = weight[classes[i]]
        for j in range(width):
            order = _order(bits[i, j])
            low, high = min(low, order), max(high, order)
            # shifts by constants: by a variable, vectors would need 64 bits
            cut = np.int32(order >> np.int32(COARSE)) if coarse else np.int32(order >> np.int32(FINE))
            spare = np.int32(bins + np.int32(j & (ZEROS - 1)))
            key = spare if order == np.int32(0) else np.int32(cut + middle)
            places[j] = np.uint32(np.int32(key * np.int32(2)))
        for j in range(width):
            impacts[j] = np.float64(w[j]) * np.float64(z[i, j])
        for j in range(width):
            sums[j] += z[i, j]
        for j in range(width):
            _add_pair(flat, places[j], 1.0, impacts[j])
    limits[0], limits[1] = low, high


@njit(nogil=True, cache=True)
def _bad_row(bits, exponent, first, last_row):  # type: ignore[no-untyped-def]
    for i in range(first, last_row):
        bad = 0
        for j in range(bits.shape[1]):
            bad += (bits[i, j] & exponent) == exponent
        if bad:
            return i
    return -1


def view_bits(values: Array) -> Array:
    """The float16 or float32 values as signed integers of the same width, without a copy."""
    return values.view(np.int16 if values.dtype == np.float16 else np.int32)


def first_bad_row(z: Tensor) -> int | None:
    """The first row that holds a NaN or an infinite value, or None."""
    if z.device.type != "cpu" or z.dtype not in (torch.float16, torch.float32):
        bad = (~torch.isfinite(z)).any(dim=1)
        return int(bad.to(torch.uint8).argmax()) if bool(bad.any()) else None
    bits = view_bits(z.numpy())
    exponent = np.int16(0x7C00) if bits.dtype == np.int16 else np.int32(0x7F800000)
    found = run_over_rows(lambda _, first, last: _bad_row(bits, exponent, first, last), *z.shape)
    return min((row for row in found if row >= 0), default=None)


def scale_by_theta(
    z: Tensor, values: Tensor, grid: tuple[float, float], padded: Tensor, out: Tensor | None = None
) -> Tensor:
    """[N, M]: each of `values` times theta of the interval that z lies in (CPU, float32)."""
    out = torch.empty_like(z) if out is None else out
    arrays = z.numpy(), values.numpy()
    origin, scale = np.float32(grid[0]), np.float32(grid[1])
    table, target = padded.numpy(), out.numpy()
    run_over_rows(lambda _, a, b: _scale_rows(*arrays, origin, scale, table, target, a, b), *z.shape)
    return out


def frozen_logits(z: Tensor, classes: Tensor, weight: Tensor, grid: tuple[float, float], padded: Tensor) -> Tensor:
    """[N]: the row of `weight` of each sample's class times theta(z) z, in one loop (CPU, float32)."""
    out = np.empty(len(z), np.float32)
    arrays = z.numpy(), classes.numpy(), weight.numpy()
    origin, scale = np.float32(grid[0]), np.float32(grid[1])
    table = padded.numpy()
    run_over_rows(lambda _, a, b: _frozen_rows(*arrays, origin, scale, table, out, a, b), *z.shape)
    return torch.from_numpy(out)


def interval_sums(z: Tensor, classes: Tensor, weight: Tensor, grid: tuple[float, float], cells: int) -> Array:
    """[cells, 2] float64: the summed impact w z and the summed z^2 of the values in each cell of the grid (CPU)."""
    parts = np.zeros((torch.get_num_threads(), cells + ZEROS, 2))
    arrays = z.numpy(), classes.numpy(), weight.numpy()
    origin, scale = np.float32(grid[0]), np.float32(grid[1])
    run_over_rows(lambda p, a, b: _interval_rows(*arrays, origin, scale, parts[p], a, b), *z.shape)
    return np.asarray(parts[:, :cells].sum(axis=0))


def bracket(z: Tensor, low: float, high: float) -> tuple[tuple[int, int, int], Array]:
    """((how many values lie below low, at low, at high), the values between both), float32 on the CPU."""
    limits = z.numpy(), np.float32(low), np.float32(high)
    found = run_over_rows(lambda _, a, b: _bracket_rows(*limits, a, b), *z.shape)
    below, at_low, at_high = (sum(part[place] for part in found) for place in range(3))
    return (below, at_low, at_high), np.concatenate([part[3] for part in found])


def sort_places(z: Tensor) -> Tensor:
    """[N, M] int64: the places of each row's values in ascending order, of equal ones in their own.

    On the CPU, numbers that hold value and place are sorted, which takes half the time of torch's stable sort.

    >>> sort_places(torch.tensor([[0.0, 2.0, -0.0, -1.0, 0.0]]))
    tensor([[3, 0, 2, 4, 1]])
    """
    if torch.compiler.is_compiling() or z.device.type != "cpu" or z.dtype != torch.float32:
        return z.sort(dim=1, stable=True).indices

    def part(_: int, first: int, last: int) -> Array:
        bits = view_bits(z[first:last].detach().contiguous().numpy())
        sign = bits >> 31
        keys: Array = (((bits & MAGNITUDE32) ^ sign) - sign).astype(np.int64) << 32 | np.arange(z.shape[1])
        keys.sort(axis=1)
        keys &= 0xFFFFFFFF
        return keys

    return torch.from_numpy(np.concatenate(run_over_rows(part, *z.shape)))


def look_up(table: Tensor, places: Tensor) -> Tensor:
    """[...]: the value of a table at each place, row by row for a 2-d one; graphs take these forms best."""
    if table.ndim > 1:
        return table.gather(-1, places)
    return table.index_select(0, places.reshape(-1)).reshape(places.shape)


def search_sorted(values: Tensor, ordered: Tensor, *, right: bool) -> Tensor:
    """int64: how many of the `ordered` are below each value (`right`: or equal to it), NaN as the lowest.

    Each row of `values` [K, n] has a row of its own in an `ordered` [K, N]. In a graph it is a binary search of fixed
    length: other runtimes have no such operator.
    """
    if not torch.compiler.is_compiling():
        return torch.searchsorted(ordered, torch.where(values.isnan(), -torch.inf, values), right=right)
    size = ordered.shape[-1]
    steps = size.bit_length()
    table = torch.nn.functional.pad(ordered, (1, 2**steps - 1 - size), value=torch.inf)
    place = torch.zeros(values.shape, dtype=torch.int64, device=values.device)
    for step in range(steps - 1, -1, -1):
        edge = look_up(table, place + 2**step)
        place = torch.where(values >= edge if right else values > edge, place + 2**step, place)
    return place.clamp_max(size)  # a value of infinity is not below the padding


def _find_cells(z: Tensor, edges: Tensor, grid: tuple[float, float] | None = None) -> Tensor:
    """[N, M] int64 by plain torch: 0 below the first edge, k in the k-th interval, len(edges) above.

    Where the intervals are those of a grid, arithmetic makes a guess, and a comparison with the two stored edges
    next to it decides: whatever rounding a runtime does, no value changes sides.
    """
    if grid is None:
        return search_sorted(z.contiguous(), edges, right=True)
    guess = (z - grid[0]) * grid[1]
    guess = torch.where(guess > 0, guess, 0.0)  # NaN becomes 0
    cell = torch.where(guess < len(edges), guess, float(len(edges))).to(torch.int64)
    bounds = torch.nn.functional.pad(torch.nn.functional.pad(edges, (1, 0), value=-torch.inf), (0, 1), value=torch.inf)
    return cell - (z < look_up(bounds, cell)).to(torch.int64) + (z >= look_up(bounds[1:], cell)).to(torch.int64)


def scale_by_theta_torch(
    z: Tensor, values: Tensor, edges: Tensor, padded: Tensor, grid: tuple[float, float] | None = None
) -> Tensor:
    """What `scale_by_theta` gives, on any device."""
    return look_up(padded, _find_cells(z, edges, grid)) * values


def frozen_logits_torch(
    z: Tensor, classes: Tensor, weight: Tensor, edges: Tensor, padded: Tensor, grid: tuple[float, float] | None = None
) -> Tensor:
    """What `frozen_logits` gives, on any device."""
    return (scale_by_theta_torch(z, z, edges, padded, grid) * weight[classes]).sum(dim=1)


TINY = 1e-12  # in place of a length of 0
ROUNDING = 1e-6  # of a sum of squares in float32


def normalise_rows(z: Tensor, out: Tensor | None = None) -> Tensor:
    """[N, M] rows divided by their length, written to `out` if given; rows of zeros stay zeros.

    >>> normalise_rows(torch.tensor([[3.0, 4.0], [0.0, 0.0]]))
    tensor([[0.6000, 0.8000],
            [0.0000, 0.0000]])
    """
    length: Tensor = torch.linalg.vector_norm(z, dim=1, keepdim=True)
    return torch.div(z, length.clamp_min(TINY), out=out)


def row_distances(a: Tensor, b: Tensor) -> Tensor:
    """[N, C] Euclidean distances between the rows; in a graph by products, where rows almost equal count as equal.

    >>> row_distances(torch.tensor([[3.0, 4.0]]), torch.zeros(1, 2))
    tensor([[5.]])
    """
    if not torch.compiler.is_compiling():
        return torch.cdist(a, b)
    lengths = a.square().sum(dim=1, keepdim=True) + b.square().sum(dim=1)
    squares = lengths - 2 * a @ b.T
    return torch.where(squares > ROUNDING * lengths, squares, 0.0).sqrt()
