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
NOISE = 1e-9  # of the largest eigenvalue: below it another is rounding of the features


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


class Scatter:
    """The summed products of all pairs of features around their mean; `directions`: of rows of length 1.

    Products are made in float64 and around the mean of the first rows: in float32, or around 0, rounding hides what
    varies little beside what varies much. Half of them are computed, since a scatter is symmetric.
    """

    def __init__(self, width: int, *, directions: bool = False) -> None:
        self.total = torch.zeros(width, width, dtype=torch.float64)  # the lower triangle
        self.shifted = torch.zeros(width, dtype=torch.float64)
        self.n, self.center, self.directions = 0, self.shifted, directions

    def add(self, rows: Tensor) -> None:
        width = rows.shape[1]
        for part in torch.split(rows, DOUBLE_ROWS):
            values = unit(part.double()) if self.directions else part.double()
            if self.n == 0:
                self.center = values.mean(dim=0)
            values -= self.center
            self.n += len(values)
            self.shifted += values.sum(dim=0)
            # Strips of torch's product are a tenth more work than BLAS's own for triangles (syrk), and less time:
            # scipy's threads wait for more by spinning, which whatever torch does next has to pay for.
            for first in range(0, width, STRIP):
                last = min(first + STRIP, width)
                self.total[first:, first:last].addmm_(values[:, first:].T, values[:, first:last])

    def result(self) -> tuple[Array, Array]:
        """([M, M] scatter around the mean, [M] sums), float64."""
        scatter = torch.addr(self.total, self.shifted, self.shifted, alpha=-1 / max(self.n, 1)).numpy()
        _mirror(scatter)
        return scatter, (self.shifted + self.n * self.center).numpy()


def merged_scatter(a: tuple[Array, Array, int], b: tuple[Array, Array, int]) -> Array:
    """[M, M]: the scatter of both sets around their common mean, from the (scatter, sums, number) of each."""
    apart = torch.from_numpy(a[1] / a[2] - b[1] / b[2])
    return np.asarray(torch.from_numpy(a[0] + b[0]).addr_(apart, apart, alpha=a[2] * b[2] / (a[2] + b[2])))


@cache
def _openblas() -> Any:
    return ThreadpoolController().select(internal_api="openblas")


def limit_blas_threads() -> Any:
    """As a context: scipy takes as many threads as torch was told to take."""
    return _openblas().limit(limits=torch.get_num_threads())
