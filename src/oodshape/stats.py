"""FeatureStats: all that any method needs to know about the training set, in one pass."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape import files, kernels
from oodshape.errors import InputError, check_fraction
from oodshape.features import Features

Array = NDArray[Any]
COLUMNS = ("counts", "impacts", "weights", "squares")
LARGEST = {16: np.float64(np.finfo(np.float16).max), 32: np.float64(np.finfo(np.float32).max)}
FEW_VALUES = 1 << 26
FINE, COARSE = 11, 12  # low bits of a float32 that share a bin: few values need finer bins to be as exact


@dataclass(frozen=True, eq=False)
class FeatureStats:
    """Sums and counts over features, of fixed size whatever the number of images; two of them add up.

    The histogram is over feature *values*: the order-preserving integer view of a float32 without its last 11
    or 12 bits is the bin (relative width 2^-12 or 2^-11); each float16 value is a bin of its own. A bin holds
    the count, the summed impact w_max z, and on request the sums of w_max and w_max^2. Bins in use are kept.
    """

    head: str  # the fingerprint of the head that gave w_max
    bits: int  # 16: a bin is one value; 32: a bin is a range of values
    shift: int  # how many low bits share a bin
    n: int
    sums: Array  # [M] float64
    minimum: float
    maximum: float
    keys: Array  # [B] int64, ascending
    counts: Array  # [B] int64
    impacts: Array  # [B] float64, sum of w_max z
    weights: Array  # [B] float64, sum of w_max; empty unless asked for
    squares: Array  # [B] float64, sum of w_max^2; empty unless asked for

    @classmethod
    def of(cls, features: Features, *, weights: bool = False) -> FeatureStats:
        """The statistics of a data set in one pass (with `weights`, also the sums of w_max and w_max^2)."""
        shift = FINE if len(features) * features.width <= FEW_VALUES else COARSE
        tally = _Tally16(features.width, weights) if features.half else _Tally32(features.width, weights, shift)
        known = features.predictions_known
        predictions = features.predictions if known else torch.empty(len(features), dtype=torch.int64)
        weight = features.head.weight.cpu()
        for first, raw in features.chunks(whole=known):
            classes = predictions[first : first + len(raw)]
            if not known:
                classes[:] = features.head.logits(raw.float()).argmax(dim=1)
            tally.add(raw.cpu(), classes.cpu(), weight)
        features._predictions = predictions  # one pass serves both
        stats = cls(head=features.head.fingerprint, n=len(features), **tally.result())
        if not np.isfinite(stats.sums).all():  # NaN and infinity always reach the sums
            features.check_finite()
        return stats

    def __add__(self, other: FeatureStats) -> FeatureStats:
        """The statistics of both data sets together; refused across heads."""
        if self.head != other.head:
            raise InputError(
                f"statistics of different heads do not add up: {self.head} and {other.head}; "
                "were the features taken from two checkpoints?"
            )
        if (self.bits, self.shift) != (other.bits, other.shift):
            shift = max(self.shift, other.shift, FINE)
            return self.coarse(shift) + other.coarse(shift)
        keys, place = np.unique(np.concatenate([self.keys, other.keys]), return_inverse=True)
        columns = {}
        for name in COLUMNS:
            mine, theirs = getattr(self, name), getattr(other, name)
            both = len(mine) == len(self.keys) and len(theirs) == len(other.keys)
            columns[name] = np.zeros(len(keys) if both else 0, mine.dtype)
            if both:
                np.add.at(columns[name], place, np.concatenate([mine, theirs]))
        return FeatureStats(
            head=self.head,
            bits=self.bits,
            shift=self.shift,
            n=self.n + other.n,
            sums=self.sums + other.sums,
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            keys=keys,
            **columns,
        )

    def coarse(self, shift: int) -> FeatureStats:
        """The same statistics in float32 bins that share `shift` low bits, so that unlike parts can be added."""
        order = self.keys << self.shift
        if self.bits == 16:
            order = _order(kernels.bits_of(_decode(self.keys, 16, 0).astype(np.float32)).astype(np.int64), 32)
        keys, starts = np.unique(order >> shift, return_index=True)
        summed = {name: getattr(self, name) for name in COLUMNS}
        summed = {name: np.add.reduceat(c, starts) if len(c) else c for name, c in summed.items()}
        return replace(self, bits=32, shift=shift, keys=keys, **summed)

    @property
    def total(self) -> int:
        """The number of feature values, images times width."""
        return int(self.n) * len(self.sums)

    @property
    def signed(self) -> bool:
        """Whether any feature value is negative."""
        return self.minimum < 0

    def mean(self) -> Array:
        """[M] float64: the mean of each feature."""
        return np.asarray(self.sums / self.n)

    def limits(self) -> tuple[Array, Array]:
        """The left and right limit of each bin, float64; equal where a bin is one value."""
        left = _decode(self.keys, self.bits, self.shift)
        return left, left if self.bits == 16 else _decode(self.keys + 1, self.bits, self.shift)

    def quantile(self, q: float) -> float:
        """The q-quantile of all feature values (linear between neighbours, as numpy's default).

        Exact on float16 features; within a bin's width (2^-11 of the value or less) on float32.
        """
        check_fraction("q", q, zero=True, one=True)
        place = (self.total - 1) * q
        lower = min(int(place), self.total - 2) if self.total > 1 else 0
        a, b = self._ranked(lower), self._ranked(min(lower + 1, self.total - 1))
        return between(a, b, place - lower)

    def _ranked(self, rank: int) -> float:
        """The value of the given rank, counted from 0."""
        if rank in (0, self.total - 1):
            return self.minimum if rank == 0 else self.maximum
        ends = np.cumsum(self.counts)
        bin_ = int(np.searchsorted(ends, rank, side="right"))
        left, right = self.limits()
        inside = (rank - (ends[bin_] - self.counts[bin_]) + 0.5) / self.counts[bin_]
        value = left[bin_] + (right[bin_] - left[bin_]) * inside
        return float(np.clip(value, self.minimum, self.maximum))

    def bin_of_rank(self, rank: int) -> tuple[float, float, int]:
        """(left, right, rank of its first value) of the bin that holds the value of the given rank."""
        ends = np.cumsum(self.counts)
        bin_ = int(np.searchsorted(ends, rank, side="right"))
        left, right = self.limits()
        return float(left[bin_]), float(right[bin_]), int(ends[bin_] - self.counts[bin_])

    def over(self, column: str, edges: Array) -> Array:
        """[K] float64: the sum of a column over each interval [edges[k], edges[k+1]).

        A bin of float32 values that an edge cuts is split in proportion; float16 bins are never cut.
        """
        values = getattr(self, column)
        if len(values) == 0:
            raise InputError(f"these statistics hold no {column}; collect them with weights=True")
        edges = np.asarray(edges, np.float64)
        left, right = self.limits()
        if self.bits == 16:
            cell = np.searchsorted(edges, left, side="right") - 1
            inside = (cell >= 0) & (cell < len(edges) - 1)
            return np.bincount(cell[inside], values[inside].astype(np.float64), len(edges) - 1)
        before = np.concatenate([[0.0], np.cumsum(values, dtype=np.float64)])
        bin_ = np.searchsorted(left, edges, side="right") - 1
        safe = np.maximum(bin_, 0)
        share = np.clip((edges - left[safe]) / (right[safe] - left[safe]), 0.0, 1.0)
        below = np.where(bin_ < 0, 0.0, before[safe] + values[safe] * share)
        return np.diff(below)

    def impact(self, edges: Array) -> Array:
        """[K] float64: the mean interval-specific feature impact E[I] over the intervals between edges."""
        return self.over("impacts", edges) / self.n

    def save(self, path: str | Path) -> None:
        """Write the statistics to one safetensors file."""
        items = {field.name: getattr(self, field.name) for field in fields(self)}
        arrays = {name: value for name, value in items.items() if isinstance(value, np.ndarray)}
        files.save(path, "statistics", {k: v for k, v in items.items() if k not in arrays}, arrays)

    @classmethod
    def load(cls, path: str | Path) -> FeatureStats:
        """The statistics that `save` wrote."""
        header, arrays = files.load(path, "statistics")
        items: dict[str, Any] = {field.name: header.get(field.name, arrays.get(field.name)) for field in fields(cls)}
        return cls(**items)


def between(a: float, b: float, share: float) -> float:
    """The value a share of the way from a to b, exactly a at 0 and b at 1 (as numpy's quantile).

    >>> between(-9.0, 1e-8, 1.0)
    1e-08
    """
    return float(a + (b - a) * share if share < 0.5 else b - (b - a) * (1 - share))


def _order(bits: Array, width: int) -> Array:
    """Signed integers in the order of the floats whose bits are given; -0.0 and 0.0 become 0."""
    magnitude = bits & ((1 << (width - 1)) - 1)
    return np.asarray(np.where(bits < 0, -magnitude, magnitude))


def _decode(keys: Array, width: int, shift: int) -> Array:
    """The smallest float64 value of each bin; beyond the largest float, the largest float."""
    order = keys.astype(np.int64) << shift
    kind, bits = (np.float32, np.int32) if width == 32 else (np.float16, np.int16)
    values = np.abs(order).astype(bits).view(kind).astype(np.float64)
    return np.asarray(np.clip(np.where(order < 0, -values, values), -LARGEST[width], LARGEST[width]))


class _Tally32:
    """The running tables over float32 values, one per thread."""

    def __init__(self, width: int, weights: bool, shift: int) -> None:
        threads = torch.get_num_threads()
        self.shift, self.bins = shift, 1 << (32 - shift)
        self.tables = [np.zeros((self.bins + kernels.ZEROS, 4 if weights else 2)) for _ in range(threads)]
        self.sums = np.zeros((threads, width))
        self.limits = np.tile(np.array([[2**31 - 1, -(2**31)]], np.int32), (threads, 1))

    def add(self, raw: Tensor, classes: Tensor, weight: Tensor) -> None:
        z = raw.float().numpy()
        arrays = kernels.bits_of(z), z, classes.numpy(), weight.numpy(), np.int32(self.shift)
        kernels.over_rows(
            lambda p, a, b: kernels._tally32_rows(*arrays, self.tables[p], self.sums[p], self.limits[p], a, b),
            *z.shape,
        )

    def result(self) -> dict[str, Any]:
        table = self.tables[0]
        for other in self.tables[1:]:
            table += other
        zero = self.bins // 2
        table[zero] += table[self.bins :].sum(axis=0)
        used = np.flatnonzero(table[: self.bins, 0])
        columns = table[used]
        low, high = self.limits[:, 0].min(), self.limits[:, 1].max()
        ends = np.abs(np.array([low, high], np.int32)).view(np.float32) * np.sign([low, high])
        return {
            "bits": 32,
            "shift": self.shift,
            "sums": self.sums.sum(axis=0),
            "minimum": float(ends[0]),
            "maximum": float(ends[1]),
            "keys": used.astype(np.int64) - zero,
            "counts": columns[:, 0].astype(np.int64),
            "impacts": columns[:, 1].copy(),
            "weights": columns[:, 2].copy() if columns.shape[1] == 4 else np.zeros(0),
            "squares": columns[:, 3].copy() if columns.shape[1] == 4 else np.zeros(0),
        }


class _Tally16:
    """The running tables over float16 values: a bin for each of the 65,536."""

    def __init__(self, width: int, weights: bool) -> None:
        threads = torch.get_num_threads()
        self.asked = weights
        self.tables = [np.zeros((1 << 16, 3 if weights else 2)) for _ in range(threads)]
        self.sums = np.zeros((threads, width))
        self.values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)

    def add(self, raw: Tensor, classes: Tensor, weight: Tensor) -> None:
        bits = raw.numpy().view(np.uint16)
        arrays = bits, self.values, classes.numpy(), weight.numpy()
        kernels.over_rows(
            lambda p, a, b: kernels._tally16_rows(*arrays, self.tables[p], self.sums[p], a, b), *bits.shape
        )

    def result(self) -> dict[str, Any]:
        table = np.sum(self.tables, axis=0)
        used = np.flatnonzero(table[:, 0])
        keys, place = np.unique(_order(used.astype(np.uint16).view(np.int16).astype(np.int64), 16), return_inverse=True)
        columns = np.zeros((len(keys), table.shape[1]))
        np.add.at(columns, place, table[used])  # -0.0 joins 0.0
        values = _decode(keys, 16, 0)
        return {
            "bits": 16,
            "shift": 0,
            "sums": self.sums.sum(axis=0),
            "minimum": float(values[0]),
            "maximum": float(values[-1]),
            "keys": keys,
            "counts": columns[:, 0].astype(np.int64),
            "impacts": columns[:, 1] * values,
            "weights": columns[:, 1].copy() if self.asked else np.zeros(0),
            "squares": columns[:, 2].copy() if self.asked else np.zeros(0),
        }
