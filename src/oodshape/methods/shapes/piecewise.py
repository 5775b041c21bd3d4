"""Piecewise-constant theta: f(z) = theta_k z on each of K intervals, and the grid that makes intervals arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import ArrayValue, Ascending, Sizes
from oodshape.features import kernels
from oodshape.methods.slots import Shape

Array = NDArray[Any]


@dataclass(frozen=True, eq=False, repr=False)
class Grid:
    """K equal intervals as arithmetic: z lies in interval k when floor((z - origin) * scale) = k, from 1 on.

    All in float32. The edges are the exact floats at which this number changes, so that a compiled loop that
    multiplies and a graph that compares with the edges never disagree.
    """

    origin: float
    scale: float
    k: int

    @classmethod
    def between(cls, alpha: float, beta: float, k: int) -> Grid:
        """The grid whose first interval begins at alpha and whose last one ends before beta."""
        low, high, infinity = np.float32(alpha), np.float32(beta), np.float32(np.inf)
        step = (np.float64(beta) - np.float64(alpha)) / k
        if not low + np.float32(step) > low or not high - np.float32(step) < high:
            raise InputError(f"{k} intervals between {alpha:g} and {beta:g} are finer than float32; use fewer")
        # rounding must not push alpha out or let beta in: many features may sit exactly there
        origin, scale = np.float32(alpha - step), np.float32(1.0 / step)
        slack = step * 2.0**-24
        while (low - origin) * scale < 1:
            slack *= 2
            origin = np.float32(alpha - step - slack)
        scale = max(scale, np.float32((k + 1) / (np.float64(high) - np.float64(origin))))
        while (high - origin) * scale < k + 1:
            scale = np.nextafter(scale, infinity)
        return cls(float(origin), float(scale), k)

    def edges(self) -> NDArray[np.float32]:
        """[K + 1] float32: the smallest value in each interval, and the smallest above the last."""
        origin, scale = np.float32(self.origin), np.float32(self.scale)
        wanted = np.arange(1, self.k + 2, dtype=np.float32)
        high = np.full(self.k + 1, np.finfo(np.float32).max.view(np.int32), np.int64)
        low = -high
        with np.errstate(over="ignore"):
            while (high - low > 1).any():  # bisection over the floats in their order
                middle = (low + high) // 2
                reached = (_unordered(middle) - origin) * scale >= wanted
                high, low = np.where(reached, middle, high), np.where(reached, low, middle)
        return _unordered(high)


def _unordered(order: Array) -> NDArray[np.float32]:
    """The floats with these places in the order of all float32 values; 0 is that of 0."""
    values = np.abs(order).astype(np.int32).view(np.float32)
    return np.where(order < 0, -values, values).astype(np.float32)


class PiecewiseConstant(ArrayValue, Shape):
    """f(z) = theta_k z for edges[k] <= z < edges[k+1]; outside 0, or with `ends` theta of the end interval times z.

    `grid` is the (origin, scale) of equal intervals; compiled loops need it, and without it intervals may have
    any width.

    >>> shape = PiecewiseConstant(edges=[0.0, 1.0, 2.0], theta=[3.0, 0.5])
    >>> shape(torch.tensor([[-1.0, 0.5, 1.0, 2.0]]))
    tensor([[-0.0000, 1.5000, 0.5000, 0.0000]])
    """

    edges: Annotated[NDArray[np.float32], Sizes("E"), Ascending()]  # E = K + 1
    theta: Annotated[NDArray[np.float32], Sizes("K")]
    grid: tuple[float, float] | None = None
    ends: bool = False

    def __post_init__(self) -> None:
        """Freeze the arrays and refuse edges that do not fit theta or the grid."""
        super().__post_init__()
        k = len(self.theta)
        if len(self.edges) != k + 1:
            raise InputError(f"{k} values of theta need {k + 1} edges, got {len(self.edges)}")
        if self.grid is not None and not np.array_equal(Grid(*self.grid, k).edges(), self.edges):
            raise InputError("the edges are not those of the grid")

    def traced(self) -> PiecewiseConstant:
        """The same intervals, never by compiled loops."""
        return PlainPieces(self.edges, self.theta, self.grid, self.ends)

    @cached_property
    def _padded(self) -> Tensor:
        """[K + 2]: theta, and on either side what values outside the limits are multiplied by."""
        return torch.tensor(np.pad(self.theta, 1, mode="edge" if self.ends else "constant"))

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        return self.scale(z, z, out)

    def scale(self, z: Tensor, values: Tensor, out: Tensor | None = None) -> Tensor:
        """[N, M]: theta(z) times `values`."""
        if self.compiled(z):
            assert self.grid is not None
            return kernels.scale_by_theta(z.contiguous(), values.contiguous(), self.grid, self._padded, out)
        edges, padded = self.tensor("edges", z), self._padded.to(z.device)
        return kernels.scale_by_theta_torch(z, values, edges, padded, self.grid)

    def compiled(self, z: Tensor) -> bool:
        """Whether the compiled loops serve this tensor."""
        return self.grid is not None and z.device.type == "cpu"

    def frozen_logits(self, z: Tensor, classes: Tensor, weight: Tensor) -> Tensor:
        """[N]: weight[class] . f(z) for each row."""
        if self.compiled(z):
            assert self.grid is not None
            return kernels.frozen_logits(z.contiguous(), classes, weight, self.grid, self._padded)
        edges, padded = self.tensor("edges", z), self._padded.to(z.device)
        return kernels.frozen_logits_torch(z, classes, weight, edges, padded, self.grid)


class PlainPieces(PiecewiseConstant):
    """The same function in plain torch on every device, for graphs."""

    def compiled(self, z: Tensor) -> bool:
        return False
