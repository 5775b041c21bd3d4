"""OptFS: the optimal piecewise-constant shaping function in closed form (Zhao et al., ICLR 2024)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.fields import Sizes
from oodshape.core.values import frozen_array
from oodshape.features import kernels
from oodshape.features.statistics import between
from oodshape.methods.slots import Shape, Shaper
from oodshape.methods.training import Training

Array = NDArray[Any]
MOST_FROM_HISTOGRAM = 200  # with more intervals than this, cut bins would show in theta


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
        low = np.full(self.k + 1, _ordered(np.float32(-np.finfo(np.float32).max)), np.int64)
        high = np.full(self.k + 1, _ordered(np.float32(np.finfo(np.float32).max)), np.int64)
        with np.errstate(over="ignore"):
            while (high - low > 1).any():  # bisection over the floats in their order
                middle = (low + high) // 2
                reached = (_unordered(middle) - origin) * scale >= wanted
                high, low = np.where(reached, middle, high), np.where(reached, low, middle)
        return _unordered(high)


def _ordered(value: np.float32) -> int:
    bits = int(np.array(value, np.float32).view(np.int32))
    return bits if bits >= 0 else -(bits & kernels.MAGNITUDE32)


def _unordered(order: Array) -> NDArray[np.float32]:
    values = np.abs(order).astype(np.int32).view(np.float32)
    return np.where(order < 0, -values, values).astype(np.float32)


@dataclass(frozen=True, eq=False, repr=False)
class PiecewiseConstant(Shape):
    """f(z) = theta_k z for edges[k] <= z < edges[k+1], and 0 outside.

    `grid` is the (origin, scale) of equal intervals; compiled loops need it, and without it intervals may have
    any width.

    >>> shape = PiecewiseConstant(edges=[0.0, 1.0, 2.0], theta=[3.0, 0.5])
    >>> shape(torch.tensor([[-1.0, 0.5, 1.0, 2.0]]))
    tensor([[-0.0000, 1.5000, 0.5000, 0.0000]])
    """

    edges: Annotated[NDArray[np.float32], Sizes("E")]  # E = K + 1
    theta: Annotated[NDArray[np.float32], Sizes("K")]
    grid: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        """Freeze the arrays and refuse edges that do not fit theta or the grid."""
        object.__setattr__(self, "edges", frozen_array(self.edges, np.float32))
        object.__setattr__(self, "theta", frozen_array(self.theta, np.float32))
        k = len(self.theta)
        if k < 1 or len(self.edges) != k + 1:
            raise InputError(f"{k} values of theta need {k + 1} edges, got {len(self.edges)}")
        if (np.diff(self.edges) < 0).any():
            raise InputError("the edges must ascend")
        if self.grid is not None and not np.array_equal(Grid(*self.grid, k).edges(), self.edges):
            raise InputError("the edges are not those of the grid")

    def traced(self) -> PiecewiseConstant:
        """The same intervals, never by compiled loops."""
        return PlainPieces(self.edges, self.theta, self.grid)

    @cached_property
    def _padded(self) -> Tensor:
        """[K + 2]: theta with zeros on either side, for values outside the limits."""
        return torch.tensor(np.pad(self.theta, 1))

    @cached_property
    def _edges(self) -> Tensor:
        return torch.tensor(self.edges)

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """Features times the theta of their interval."""
        return self.scale(z, z, out)

    def scale(self, z: Tensor, values: Tensor, out: Tensor | None = None) -> Tensor:
        """[N, M]: theta(z) times `values`."""
        if self.compiled(z):
            assert self.grid is not None
            return kernels.scale_by_theta(z.contiguous(), values.contiguous(), self.grid, self._padded, out)
        edges, padded = self._edges.to(z.device), self._padded.to(z.device)
        return kernels.scale_by_theta_torch(z, values, edges, padded, self.grid)

    def compiled(self, z: Tensor) -> bool:
        """Whether the compiled loops serve this tensor."""
        return self.grid is not None and z.device.type == "cpu"

    def frozen_logits(self, z: Tensor, classes: Tensor, weight: Tensor) -> Tensor:
        """[N]: weight[class] . f(z) for each row."""
        if self.compiled(z):
            assert self.grid is not None
            return kernels.frozen_logits(z.contiguous(), classes, weight, self.grid, self._padded)
        edges, padded = self._edges.to(z.device), self._padded.to(z.device)
        return kernels.frozen_logits_torch(z, classes, weight, edges, padded, self.grid)


@dataclass(frozen=True, eq=False, repr=False)
class PlainPieces(PiecewiseConstant):
    """The same function in plain torch on every device, for graphs."""

    def compiled(self, z: Tensor) -> bool:
        """Never."""
        return False


@dataclass(frozen=True, eq=False, repr=False)
class OptFS(Shaper):
    """theta ~ E[I(z)], the mean impact on the max logit of the features in each of k equal intervals.

    The intervals lie between the `tail` and 1 - `tail` quantiles of all training features; theta has norm
    sqrt(k), or `norm` (the authors' code uses 1000). `exact` goes over the features again, so that no
    histogram bin is cut; it is implied by more than 200 intervals.
    """

    k: int = 100
    tail: float = 0.001
    norm: float | None = None
    exact: bool = False

    def __post_init__(self) -> None:
        """Refuse settings that have no meaning."""
        if self.k < 1 or self.k != int(self.k):
            raise InputError(f"k must be a whole number of at least 1, got {self.k}")
        if not 0 <= self.tail < 0.5:
            hint = f"; did you mean {self.tail / 100:g}?" if 0.5 <= self.tail < 50 else ""
            raise InputError(f"tail must lie in [0, 0.5), got {self.tail:g}{hint}")
        if self.norm is not None and not 0 < self.norm < math.inf:
            raise InputError(f"norm must be positive, got {self.norm:g}")

    def fit(self, train: Training) -> PiecewiseConstant:
        """The optimal shaping function, from statistics alone unless `exact`."""
        exact = (self.exact or self.k > MOST_FROM_HISTOGRAM) and train.stats.bits == 32
        grid = Grid.between(*self.limits(train, exact), self.k)
        edges = grid.edges()
        impact = _exact_impact(train, grid) if exact else train.stats.impact(edges)
        return PiecewiseConstant(edges, self.solve(impact), (grid.origin, grid.scale))

    def solve(self, direction: Array) -> NDArray[np.float32]:
        """[K] float32: the given direction with norm sqrt(k), or the norm asked for."""
        length = float(np.linalg.norm(direction))
        if length == 0:
            raise InputError("every interval has impact 0: the features or the head's weights are all zero")
        norm = math.sqrt(self.k) if self.norm is None else self.norm
        return np.asarray(direction / length * norm).astype(np.float32)

    def limits(self, train: Training, exact: bool) -> tuple[float, float]:
        """(alpha, beta): the quantiles; beta lies above the largest value when tail = 0."""
        quantile = _exact_quantile if exact else (lambda t, q: t.stats.quantile(q))
        alpha, beta = quantile(train, self.tail), quantile(train, 1 - self.tail)
        if not alpha < beta:
            raise InputError(
                f"the features are constant: their {self.tail:g} and {1 - self.tail:g} quantiles are both {alpha:g}"
            )
        if self.tail == 0:
            beta = float(np.nextafter(np.float32(beta), np.float32(np.inf)))
        return alpha, beta


def _exact_quantile(train: Training, q: float) -> float:
    """The q-quantile of float32 features to the last bit, by looking into the bins that hold it."""
    stats = train.stats
    place = (stats.total - 1) * q
    lower = min(int(place), max(stats.total - 2, 0))
    ranks = (lower, min(lower + 1, stats.total - 1))
    bins = [stats.bin_of_rank(rank) for rank in ranks]
    inside: list[list[Array]] = [[], []]
    for _, raw in train.features.chunks():
        z = raw.float().cpu()
        for found, (left, right, *_) in zip(inside, bins, strict=True):
            found.append(z[(z >= left) & (z < right)].numpy())
    a, b = (
        float(np.sort(np.concatenate(found))[rank - start])
        for found, rank, (_, _, start, _) in zip(inside, ranks, bins, strict=True)
    )
    return between(a, b, place - lower)


def _exact_impact(train: Training, grid: Grid) -> Array:
    """[K] float64: the mean impact per interval, summed value by value."""
    total = np.zeros(grid.k + 2)
    weight = train.features.head.weight.cpu()
    classes = train.features.predictions.cpu()
    for first, raw in train.features.chunks():
        z = raw.float().cpu()
        total += kernels.interval_impacts(
            z, classes[first : first + len(z)], weight, (grid.origin, grid.scale), grid.k + 2
        )
    return total[1:-1] / len(train.features)
