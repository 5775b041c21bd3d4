"""The loops of sums over rows: of classes, of squares, of sorted rows, and products of all pairs of features.

Rows are float32 and sums float64; no float64 copy of the rows is made. As in `kernels`, all that a compiled loop calls
stands in this file.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numba import njit
from numpy.typing import NDArray
from torch import Tensor

from oodshape.features.kernels import normalise_rows, run_over_rows

Array = NDArray[Any]
SUMS = {"reassoc", "nsz", "contract"}  # as in kernels: numba would not see a change there
SORTED = 256  # rows that are sorted at once: a copy that stays in the cache
STRIP = 256  # columns that are multiplied with those before them at once
DOUBLE_ROWS = 512  # rows that are multiplied at once in float64
SINGLE_ROWS = 2048  # rows whose products are added in float32, before they join the others in float64
NARROW = 512  # features, below which all products are float64: they cost little next to the rest
JUDGED = 1.5  # rows for each feature that are multiplied in float64, and say whether float32 is enough for the others
LEAST = 1e-3  # of a feature's variance, which the features before it must leave for products in float32
NOISE = 1e-9  # of the largest eigenvalue: below it another is rounding of the features


@njit(nogil=True, cache=True, fastmath=SUMS)
def _class_columns(rows, factors, classes, total, first, last):  # type: ignore[no-untyped-def]
    for i in range(rows.shape[0]):  # slices: an index that may be negative, for all the compiler knows, costs vectors
        row, target, factor = rows[i, first:last], total[classes[i], first:last], factors[i]
        for j in range(len(row)):
            target[j] += np.float64(row[j]) * factor


@njit(nogil=True, cache=True, fastmath=SUMS)
def _plain_columns(rows, total, first, last):  # type: ignore[no-untyped-def]
    target = total[first:last]
    for i in range(rows.shape[0]):
        row = rows[i, first:last]
        for j in range(len(row)):
            target[j] += np.float64(row[j])


@njit(nogil=True, cache=True, fastmath=SUMS)
def _square_columns(rows, total, first, last):  # type: ignore[no-untyped-def]
    target = total[first:last]
    for i in range(rows.shape[0]):
        row = rows[i, first:last]
        for j in range(len(row)):
            value = np.float64(row[j])
            target[j] += value * value


@njit(nogil=True, cache=True, fastmath=SUMS)
def _row_squares(rows, total, first, last):  # type: ignore[no-untyped-def]
    for i in range(first, last):
        summed = 0.0
        for j in range(rows.shape[1]):
            value = np.float64(rows[i, j])
            summed += value * value
        total[i] = summed


@njit(nogil=True, cache=True)
def mirror(total):  # type: ignore[no-untyped-def]
    """Copy the lower triangle to the upper one."""
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


def add_products(total: Tensor, values: Tensor, others: Tensor, factor: float = 1.0) -> None:
    """Add values.T @ others, times a factor, to the lower triangle of the total [M, M], float64.

    Strips of torch's product are a tenth more work than BLAS's own for triangles (syrk), and less time: scipy's threads
    wait for more by spinning, which whatever torch does next has to pay for.
    """
    for first in range(0, len(total), STRIP):
        strip, columns = total[first:, first : first + STRIP], others[:, first : first + STRIP]
        if values.dtype == torch.float64:
            strip.addmm_(values[:, first:].T, columns, alpha=factor)
        else:
            strip.add_(values[:, first:].T @ columns, alpha=factor)


class Scatter:
    """The summed products of all pairs of features around their mean; `directions`: of rows of length 1.

    Rows are taken around the mean of the first of them. The first products are float64, and so are the others where
    `double` asks for it, where features are few, or where the first show directions that float32 would lose
    (`_float32_suffices`). Otherwise the others are float32, added up in float64: the product of two features is within
    1e-6 of that of their standard deviations. Half of them are computed, since a scatter is symmetric.
    """

    def __init__(self, width: int, *, directions: bool = False, double: bool = False) -> None:
        self.total = torch.zeros(width, width, dtype=torch.float64)  # the lower triangle
        self.shifted = torch.zeros(width, dtype=torch.float64)
        self.n, self.center, self.directions = 0, self.shifted, directions
        self.double: bool | None = True if double or width < NARROW else None  # None: not chosen yet

    def add(self, rows: Tensor) -> None:
        while len(rows):
            if self.double is None and self.n >= JUDGED * len(self.total):
                self.double = not _float32_suffices(self.total, self.center, self.n)
            size = SINGLE_ROWS if self.double is False else DOUBLE_ROWS
            self._add(rows[:size].to(torch.float32 if self.double is False else torch.float64))
            rows = rows[size:]

    def _add(self, rows: Tensor) -> None:
        values = normalise_rows(rows) if self.directions else rows
        if self.n == 0:
            self.center = values.mean(dim=0).float().double()
        values = values - self.center.to(values.dtype)
        self.n += len(values)
        add_columns(values, self.shifted.numpy())
        add_products(self.total, values, values)

    def result(self) -> tuple[Array, Array]:
        """([M, M] scatter around the mean, [M] sums), float64."""
        scatter = torch.addr(self.total, self.shifted, self.shifted, alpha=-1 / max(self.n, 1)).numpy()
        mirror(scatter)
        return scatter, (self.shifted + self.n * self.center).numpy()


def _float32_suffices(lower: Tensor, center: Tensor, n: int) -> bool:
    """Whether products in float32 keep all directions of a scatter, of which the lower triangle is given.

    What the features before it leave of a feature's variance must be a share `LEAST` of it; features that never change
    do not count. Rows of length 1 are rounded next to their mean, so a variance far below that counts as small too.
    """
    variance = lower.diagonal()
    variance = torch.where(variance > 0, variance, torch.inf)
    scale = variance.rsqrt()
    alike = (lower * scale).mul_(scale[:, None]).float().fill_diagonal_(1.0)
    left, failed = torch.linalg.cholesky_ex(alike)
    offset = n * center.square() / variance
    return not failed.item() and bool((left.diagonal().square() > LEAST * (1 + 1e-6 * offset)).all())


def merge_scatters(a: tuple[Array, Array, int], b: tuple[Array, Array, int]) -> Array:
    """[M, M]: the scatter of both sets around their common mean, from the (scatter, sums, number) of each."""
    apart = torch.from_numpy(a[1] / a[2] - b[1] / b[2])
    return np.asarray(torch.from_numpy(a[0] + b[0]).addr_(apart, apart, alpha=a[2] * b[2] / (a[2] + b[2])))


def multiply_upper(rows: Tensor, matrix: Tensor) -> Tensor:
    """[n, M]: rows times an upper triangle [M, M], without most of the products with its zeros.

    >>> multiply_upper(torch.eye(600), torch.ones(600, 600).triu())[511:513, 510:514]
    tensor([[0., 1., 1., 1.],
            [0., 0., 1., 1.]])
    """
    cuts = range(0, len(matrix), 2 * STRIP)
    return torch.cat([rows[:, : a + 2 * STRIP] @ matrix[: a + 2 * STRIP, a : a + 2 * STRIP] for a in cuts], dim=1)


def invert_upper(matrix: Tensor) -> None:
    """Replace an upper triangle [M, M] by its inverse, in place: products of its halves, and torch's threads alone."""
    half = len(matrix) // 2
    if len(matrix) <= STRIP:
        matrix.copy_(torch.linalg.solve_triangular(matrix, torch.eye(len(matrix), dtype=matrix.dtype), upper=True))
        return
    first, corner, last = matrix[:half, :half], matrix[:half, half:], matrix[half:, half:]
    invert_upper(first)
    invert_upper(last)
    corner.copy_(-(first @ corner) @ last)
