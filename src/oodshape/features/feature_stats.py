"""FeatureStats: all that any method needs to know about the training set, in one pass."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError, check_fraction
from oodshape.core.values import Ascending, AtLeast, Sizes, Value
from oodshape.features import kernels
from oodshape.features.chunks import Chunked, check_finite
from oodshape.features.kernels import COARSE, FINE
from oodshape.networks.head import Fingerprint, Head

Array = NDArray[Any]
LARGEST = {16: np.float64(np.finfo(np.float16).max), 32: np.float64(np.finfo(np.float32).max)}
FEW_VALUES = 1 << 26


def _choose_shift(rows: int, width: int) -> int:
    """How many low bits of a float32 value share a bin: fewer where there are few values."""
    return FINE if rows * width <= FEW_VALUES else COARSE


def _order(bits: Array, width: int) -> Array:
    """Signed integers in the order of the floats whose bits are given; -0.0 and 0.0 become 0."""
    magnitude = bits & ((1 << (width - 1)) - 1)
    return np.asarray(np.where(bits < 0, -magnitude, magnitude))


def decode_bins(keys: Array, width: int, shift: int) -> Array:
    """The smallest float64 value of each bin; beyond the largest float, the largest float."""
    order = keys.astype(np.int64) << shift
    kind, bits = (np.float32, np.int32) if width == 32 else (np.float16, np.int16)
    values = np.abs(order).astype(bits).view(kind).astype(np.float64)
    return np.asarray(np.clip(np.where(order < 0, -values, values), -LARGEST[width], LARGEST[width]))


Float64 = NDArray[np.float64]
NEGATIVE = 0.01  # the share of negative values from which features count as signed


class FeatureStats(Value):
    """Sums and counts over features, of a fixed size for any number of images; two of them can be added.

    The histogram is over feature *values*: the bin of a float32 value is its order-preserving integer view without the
    last 11 or 12 bits (relative width 2^-12 or 2^-11); each float16 value has its own bin. A bin holds the count and
    the summed impact w_max z. Only bins in use are stored.

    >>> from oodshape import Features
    >>> features = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> stats = FeatureStats.of(features)
    >>> stats.n, stats.mean().tolist(), stats.maximum
    (2, [0.75, 1.75], 3.0)

    Attributes:
        head: Fingerprint of the head that gave w_max.
        bits: 16: a bin is one value; 32: a bin is a range of values.
        shift: Number of low bits that share a bin.
        n: Number of images.
        sums: [M] sum of each feature.
        minimum: Smallest value.
        maximum: Largest value.
        keys: [B] bins in use, ascending.
        counts: [B] values in each bin.
        impacts: [B] sum of w_max z in each bin.
    """

    head: Fingerprint | str  # the fingerprint of the head that gave w_max
    bits: Literal[16, 32]  # 16: a bin is one value; 32: a bin is a range of values
    shift: Annotated[int, AtLeast(0)]  # how many low bits share a bin
    n: Annotated[int, AtLeast(1)]
    sums: Annotated[Float64, Sizes("M")]
    minimum: float
    maximum: float
    keys: Annotated[NDArray[np.int64], Sizes("B"), Ascending(strictly=True)]
    counts: Annotated[NDArray[np.int64], Sizes("B"), AtLeast(1)]
    impacts: Annotated[Float64, Sizes("B")]  # sum of w_max z

    def __post_init__(self) -> None:
        reach = np.abs(self.keys.astype(np.float64)).max() * 2.0 ** min(self.shift, 64)
        if reach > 2.0 ** (self.bits - 1):
            raise InputError(f"bins of {self.bits} bits, {self.shift} of them shared, do not reach to {self.keys[-1]}")
        if float(self.counts.sum(dtype=np.float64)) != self.total:
            raise InputError(f"{self.n} images of {len(self.sums)} features are not {self.counts.sum()} values")
        if not self.minimum <= self.maximum:
            raise InputError(f"the smallest value {self.minimum:g} is above the largest {self.maximum:g}")

    @classmethod
    def of(cls, features: Chunked) -> FeatureStats:
        """Collect the statistics of a data set in one pass.

        Args:
            features: The features.

        Returns:
            The statistics.
        """
        running = RunningStats(features.head, len(features), half=features.half)
        for _, raw, classes in features.classified_chunks(whole=not features.half):
            running.add(raw, classes)
        if not running.finite:
            for first, raw, _ in features.classified_chunks():
                check_finite(raw, first)
        return running.result()

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
        counts, impacts = np.zeros(len(keys), np.int64), np.zeros(len(keys))
        np.add.at(counts, place, np.concatenate([self.counts, other.counts]))
        np.add.at(impacts, place, np.concatenate([self.impacts, other.impacts]))
        return FeatureStats(
            head=self.head,
            bits=self.bits,
            shift=self.shift,
            n=self.n + other.n,
            sums=self.sums + other.sums,
            minimum=min(self.minimum, other.minimum),
            maximum=max(self.maximum, other.maximum),
            keys=keys,
            counts=counts,
            impacts=impacts,
        )

    def coarse(self, shift: int) -> FeatureStats:
        """Merge bins, so that statistics with different bins can be added.

        Args:
            shift: Number of low bits that share a float32 bin.

        Returns:
            The same statistics in wider bins.
        """
        order = self.keys << self.shift
        if self.bits == 16:
            order = _order(kernels.view_bits(decode_bins(self.keys, 16, 0).astype(np.float32)).astype(np.int64), 32)
        keys, starts = np.unique(order >> shift, return_index=True)
        counts, impacts = (np.add.reduceat(column, starts) for column in (self.counts, self.impacts))
        return replace(self, bits=32, shift=shift, keys=keys, counts=counts, impacts=impacts)

    def settled(self) -> FeatureStats:
        """Merge bins to those that one pass over as many values uses, so that parts add up to the whole.

        Returns:
            The same statistics.
        """
        shift = _choose_shift(self.n, len(self.sums))
        return self.coarse(shift) if self.bits == 32 and self.shift < shift else self

    @property
    def total(self) -> int:
        """The number of feature values, images times width."""
        return int(self.n) * len(self.sums)

    @property
    def signed(self) -> bool:
        """Whether more than a hundredth of the values are negative; a few may be, after a ReLU, by rounding."""
        return self.quantile(NEGATIVE) < 0

    def mean(self) -> Array:
        """Compute the mean of each feature.

        Returns:
            [M] float64.
        """
        return np.asarray(self.sums / self.n)

    def limits(self) -> tuple[Array, Array]:
        """Return the limits of each bin.

        Returns:
            Left and right limits, float64; equal if a bin is one value.
        """
        left = decode_bins(self.keys, self.bits, self.shift)
        return left, left if self.bits == 16 else decode_bins(self.keys + 1, self.bits, self.shift)

    def quantile(self, q: float) -> float:
        """Compute the q-quantile of all feature values (linear interpolation, numpy's default).

        Args:
            q: A fraction in [0, 1].

        Returns:
            The quantile: exact for float16 features, within a bin's width (2^-11 of the value or less) for float32.
        """
        check_fraction("q", q, zero=True, one=True)
        place = (self.total - 1) * q
        lower = min(int(place), self.total - 2) if self.total > 1 else 0
        a, b = self._ranked(lower), self._ranked(min(lower + 1, self.total - 1))
        return interpolate(a, b, place - lower)

    def _ranked(self, rank: int) -> float:
        """The value of the given rank, counted from 0."""
        if rank in (0, self.total - 1):
            return self.minimum if rank == 0 else self.maximum
        left, right, first, count = self.bin_of_rank(rank)
        value = left + (right - left) * (rank - first + 0.5) / count
        return float(np.clip(value, self.minimum, self.maximum))

    def bin_of_rank(self, rank: int) -> tuple[float, float, int, int]:
        """Find the bin that holds the value of a rank.

        Args:
            rank: Place among all values, from 0.

        Returns:
            Left limit, right limit, rank of its first value, and count.
        """
        ends = np.cumsum(self.counts)
        bin_ = int(np.searchsorted(ends, rank, side="right"))
        left, right = self.limits()
        count = int(self.counts[bin_])
        return float(left[bin_]), float(right[bin_]), int(ends[bin_]) - count, count

    def over(self, values: Array, edges: Array) -> Array:
        """Sum values over intervals; a float32 bin that an edge cuts is split in proportion.

        Args:
            values: [B] one value per bin.
            edges: [K + 1] edges of the intervals [edges[k], edges[k+1]).

        Returns:
            [K] float64 sums.
        """
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
        """Compute the mean interval-specific feature impact E[I].

        Args:
            edges: [K + 1] edges of the intervals.

        Returns:
            [K] float64 means.
        """
        return self.over(self.impacts, edges) / self.n

    def energy(self, edges: Array) -> Array:
        """Compute E[sum of z^2 over the values in each interval] from the bins.

        Args:
            edges: [K + 1] edges of the intervals.

        Returns:
            [K] float64: exact for float16 features; a float32 bin counts as its middle, within 2^-12 of its values.
        """
        left, right = self.limits()
        return self.over(self.counts * ((left + right) / 2) ** 2, edges) / self.n


class RunningStats:
    """`FeatureStats` while they are collected: tables over float32 values, one per thread.

    float16 values have bins of their own there.
    """

    def __init__(self, head: Head, images: int, *, half: bool) -> None:
        """Empty tables; `images` says how many rows will come at most."""
        threads, self.shift = torch.get_num_threads(), _choose_shift(images, head.width)
        self.head, self.n, self.half, self.weight = head, 0, half, head.weight.cpu().numpy()
        self.bins = 1 << (32 - self.shift)
        self.tables = [np.zeros((self.bins + kernels.ZEROS, 2)) for _ in range(threads)]
        self.sums = np.zeros((threads, head.width))
        self.limits = np.tile(np.array([[2**31 - 1, -(2**31)]], np.int32), (threads, 1))

    def add(self, raw: Tensor, classes: Tensor) -> None:
        """Count in some rows, as stored, of the predicted classes."""
        self.n += len(raw)
        z = raw.cpu().float().numpy()
        arrays = kernels.view_bits(z), z, classes.cpu().numpy(), self.weight, self.shift == COARSE
        kernels.run_over_rows(
            lambda p, a, b: kernels._tally_rows(*arrays, self.tables[p], self.sums[p], self.limits[p], a, b), *z.shape
        )

    @property
    def finite(self) -> bool:
        """Whether all values were: NaN and infinity always reach the sums."""
        return bool(np.isfinite(self.sums).all())

    def result(self) -> FeatureStats:
        """The statistics; bins in use only."""
        table = self.tables[0]
        for other in self.tables[1:]:
            table += other
        zero = self.bins // 2
        table[zero] += table[self.bins :].sum(axis=0)
        used = np.flatnonzero(table[: self.bins, 0])
        columns = table[used]
        low, high = self.limits[:, 0].min(), self.limits[:, 1].max()
        ends = np.abs(np.array([low, high], np.int32)).view(np.float32) * np.sign([low, high])
        keys = used.astype(np.int64) - zero
        if self.half:  # a float16 has fewer bits than a bin leaves
            values = decode_bins(keys, 32, self.shift).astype(np.float16)
            keys = _order(kernels.view_bits(values).astype(np.int64), 16)
        return FeatureStats(
            head=self.head.fingerprint,
            n=self.n,
            bits=16 if self.half else 32,
            shift=0 if self.half else self.shift,
            sums=self.sums.sum(axis=0),
            minimum=float(ends[0]),
            maximum=float(ends[1]),
            keys=keys,
            counts=columns[:, 0].astype(np.int64),
            impacts=columns[:, 1].copy(),
        )


def interpolate(a: float, b: float, share: float) -> float:
    """The value a share of the way from a to b, exactly a at 0 and b at 1 (as numpy's quantile).

    >>> interpolate(-9.0, 1e-8, 1.0)
    1e-08
    """
    return float(a + (b - a) * share if share < 0.5 else b - (b - a) * (1 - share))
