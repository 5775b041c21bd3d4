"""The loops of sums over rows: of classes, of squares, of sorted rows, and products of all pairs of features.

Rows are float32 and sums float64; no float64 copy of the rows is made. As in `kernels`, all that a compiled loop calls
stands in this file.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController
from torch import Tensor

from oodshape.features.kernels import run_over_rows, unit

Array = NDArray[Any]
SUMS = {"reassoc", "nsz", "contract"}  # as in kernels: numba would not see a change there
SORTED = 256  # rows that are sorted at once: a copy that stays in the cache
STRIP = 256  # columns that are multiplied with those before them at once
DOUBLE_ROWS = 512  # rows that are multiplied at once in float64
SINGLE_ROWS = 4096  # rows whose products are added in float32, before they join the others in float64
FEW = 10  # images for each feature, below which products are float64: a rank may hang on them
NARROW = 512  # features, below which they are float64 too: they cost little beside the rest
# Of the largest eigenvalue: below it another is rounding. Products in float32 leave 4e-9 where there is nothing, in
# float64 1e-15.
SINGLE_NOISE, DOUBLE_NOISE = 3e-8, 1e-9


@njit(nogil=True, cache=True, fastmath=SUMS)
def _class_columns(rows, factors, classes, total, first, last):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        target, factor = total[classes[i]], factors[i]
        for j in range(first, last):
            target[j] += np.float64(rows[i, j]) * factor


@njit(nogil=True, cache=True, fastmath=SUMS)
def _plain_columns(rows, total, first, last):  # type: ignore[no-untyped-def]
    fours = rows.shape[0] // 4 * 4  # at once: the total is read and written less often than the rows
    for i in range(0, fours, 4):
        a, b, c, d = rows[i], rows[i + 1], rows[i + 2], rows[i + 3]
        for j in range(first, last):
            total[j] += (np.float64(a[j]) + np.float64(b[j])) + (np.float64(c[j]) + np.float64(d[j]))
    for i in range(fours, rows.shape[0]):
        for j in range(first, last):
            total[j] += np.float64(rows[i, j])


@njit(nogil=True, cache=True, fastmath=SUMS)
def _square_columns(rows, total, first, last):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):
        for j in range(first, last):
            value = np.float64(rows[i, j])
            total[j] += value * value


@njit(nogil=True, cache=True, fastmath=SUMS)
def _row_squares(rows, total, first, last):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        summed = 0.0
        for j in range(rows.shape[1]):
            value = np.float64(rows[i, j])
            summed += value * value
        total[i] = summed


@njit(nogil=True, cache=True)
def _add_triangle(products, total, first, last):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        for j in range(i + 1):
            total[i, j] += products[i, j]


@njit(nogil=True, cache=True)
def _mirror(total):  # type: ignore[no-untyped-def]
    for i in range(len(total)):
        for j in range(i):
            total[j, i] = total[i, j]


def add_by_class(rows: Tensor, classes: Tensor, total: Array, factors: Tensor | None = None) -> None:
    """Add each row, times its factor, to the row of its class in the total [C, ...]; threads share the columns."""
    scale = np.ones(len(rows)) if factors is None else factors.double().numpy()
    arrays = rows.contiguous().numpy(), scale, classes.numpy(), total
    run_over_rows(lambda _, a, b: _class_columns(*arrays, a, b), rows.shape[1], len(rows))


def add_columns(rows: Tensor, total: Array) -> None:
    """Add the values of each column to the total [M]."""
    values = rows.contiguous().numpy()
    run_over_rows(lambda _, a, b: _plain_columns(values, total, a, b), rows.shape[1], len(rows))


def add_squares(rows: Tensor, total: Array) -> None:
    """Add the squares of each column to the total [M]."""
    values = rows.contiguous().numpy()
    run_over_rows(lambda _, a, b: _square_columns(values, total, a, b), rows.shape[1], len(rows))


def row_lengths(rows: Tensor) -> Tensor:
    """[n] float64: the length of each row; torch would make a copy of all in float64."""
    values, total = rows.contiguous().numpy(), np.empty(len(rows))
    run_over_rows(lambda _, a, b: _row_squares(values, total, a, b), *rows.shape)
    return torch.from_numpy(total).sqrt_()


def add_sorted(rows: Tensor, total: Array) -> None:
    """Add the rows, each sorted, to the total [M]; numpy sorts values alone, and with wide instructions."""
    values = rows.numpy()

    def part(_: int, first: int, last: int) -> Array:
        summed = np.zeros(rows.shape[1])
        for start in range(first, last, SORTED):
            summed += np.sort(values[start : min(start + SORTED, last)], axis=1).sum(axis=0, dtype=np.float64)
        return summed

    for summed in run_over_rows(part, *rows.shape):
        total += summed


def needs_float64(images: int, width: int) -> bool:
    """Whether the products of so many images and features are made in float64."""
    return width < NARROW or images < FEW * width


def eigenvalue_noise(images: int, width: int) -> float:
    """The share of the largest eigenvalue of the summed products, below which another is rounding."""
    return DOUBLE_NOISE if needs_float64(images, width) else SINGLE_NOISE


class Products:
    """The summed products of all pairs of features, Z'Z; `directions`: of rows of length 1.

    Half of them are computed, since they are the same on both sides of the diagonal. For many images they are made in
    float32 (`needs_float64`), a few thousand rows at once, and added up in float64.
    """

    def __init__(self, width: int, images: int, *, directions: bool = False, double: bool = False) -> None:
        """No products yet; `images` says how many will come; `double`: in float64, however many."""
        self.total = np.zeros((width, width))  # the lower triangle
        self.double, self.directions = double or needs_float64(images, width), directions

    def room(self) -> Tensor:
        """Where products of some rows are made, before they join the others; several of these may share it."""
        return torch.empty(self.total.shape, dtype=torch.float64 if self.double else torch.float32)

    def add(self, rows: Tensor, room: Tensor) -> None:
        for part in torch.split(rows, DOUBLE_ROWS if self.double else SINGLE_ROWS):
            values = part.double() if self.double else part
            lower_products(unit(values) if self.directions else values, room)
            add_triangle(room.numpy(), self.total)

    def result(self) -> Array:
        """[M, M] float64, both sides of the diagonal. It is no copy: what is added later is in it, on one side."""
        _mirror(self.total)
        return self.total


def lower_products(rows: Tensor, found: Tensor) -> None:
    """Write the products of all pairs of columns to the lower triangle [M, M]; above it stands what has no meaning.

    Strips of torch's product are a tenth more work than BLAS's own for triangles (syrk), and less time: scipy's threads
    wait for more by spinning, which whatever torch does next has to pay for.
    """
    width = rows.shape[1]
    for first in range(0, width, STRIP):
        last = min(first + STRIP, width)
        torch.mm(rows[:, first:].T, rows[:, first:last], out=found[first:, first:last])


@cache
def _openblas() -> Any:
    return ThreadpoolController().select(internal_api="openblas")


def limit_blas_threads() -> Any:
    """As a context: scipy takes as many threads as torch was told to take."""
    return _openblas().limit(limits=torch.get_num_threads())


def add_triangle(products: Array, total: Array) -> None:
    """Add the lower triangle of the products to that of the total; threads take parts of equal size."""
    width = len(total)
    # rows up to width * sqrt(share) hold that share of a triangle
    cuts = [int(width * np.sqrt(part / 8)) for part in range(9)]
    run_over_rows(
        lambda _, a, b: [_add_triangle(products, total, cuts[i], cuts[i + 1]) for i in range(a, b)], 8, width**2
    )
