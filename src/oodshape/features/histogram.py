"""Tallies: the running histograms over feature values that become FeatureStats."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.features import kernels
from oodshape.features.kernels import COARSE, FINE

Array = NDArray[Any]
LARGEST = {16: np.float64(np.finfo(np.float16).max), 32: np.float64(np.finfo(np.float32).max)}
FEW_VALUES = 1 << 26


def tally_for(rows: int, width: int, *, half: bool) -> Tally16 | Tally32:
    """The tally that suits a data set: exact for float16 values, finer bins where float32 values are few."""
    if half:
        return Tally16(width)
    return Tally32(width, shift_for(rows, width))


def shift_for(rows: int, width: int) -> int:
    """How many low bits of a float32 value share a bin: fewer where there are few values."""
    return FINE if rows * width <= FEW_VALUES else COARSE


def ordered(bits: Array, width: int) -> Array:
    """Signed integers in the order of the floats whose bits are given; -0.0 and 0.0 become 0."""
    magnitude = bits & ((1 << (width - 1)) - 1)
    return np.asarray(np.where(bits < 0, -magnitude, magnitude))


def decode(keys: Array, width: int, shift: int) -> Array:
    """The smallest float64 value of each bin; beyond the largest float, the largest float."""
    order = keys.astype(np.int64) << shift
    kind, bits = (np.float32, np.int32) if width == 32 else (np.float16, np.int16)
    values = np.abs(order).astype(bits).view(kind).astype(np.float64)
    return np.asarray(np.clip(np.where(order < 0, -values, values), -LARGEST[width], LARGEST[width]))


class Tally32:
    """The running tables over float32 values, one per thread."""

    def __init__(self, width: int, shift: int) -> None:
        """Empty tables for rows of the given width."""
        threads = torch.get_num_threads()
        self.shift, self.bins = shift, 1 << (32 - shift)
        self.tables = [np.zeros((self.bins + kernels.ZEROS, 2)) for _ in range(threads)]
        self.sums = np.zeros((threads, width))
        self.limits = np.tile(np.array([[2**31 - 1, -(2**31)]], np.int32), (threads, 1))

    def add(self, raw: Tensor, classes: Tensor, weight: Tensor) -> None:
        """Count some rows in; `classes` picks the row of `weight` that is w_max."""
        z = raw.float().numpy()
        arrays = kernels.view_bits(z), z, classes.numpy(), weight.numpy(), self.shift == COARSE
        kernels.run_over_rows(
            lambda p, a, b: kernels._tally32_rows(*arrays, self.tables[p], self.sums[p], self.limits[p], a, b),
            *z.shape,
        )

    def result(self) -> dict[str, Any]:
        """The fields of FeatureStats that the tables give; bins in use only."""
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
        }


class Tally16:
    """The running tables over float16 values: a bin for each of the 65,536."""

    def __init__(self, width: int) -> None:
        """Empty tables for rows of the given width."""
        threads = torch.get_num_threads()
        self.tables = [np.zeros((1 << 16, 2)) for _ in range(threads)]
        self.sums = np.zeros((threads, width))
        self.values = np.arange(1 << 16, dtype=np.uint16).view(np.float16).astype(np.float32)

    def add(self, raw: Tensor, classes: Tensor, weight: Tensor) -> None:
        """Count some rows in; `classes` picks the row of `weight` that is w_max."""
        bits = raw.numpy().view(np.uint16)
        arrays = bits, self.values, classes.numpy(), weight.numpy()
        kernels.run_over_rows(
            lambda p, a, b: kernels._tally16_rows(*arrays, self.tables[p], self.sums[p], a, b), *bits.shape
        )

    def result(self) -> dict[str, Any]:
        """The fields of FeatureStats that the tables give; bins in use only."""
        table = np.sum(self.tables, axis=0)
        used = np.flatnonzero(table[:, 0])
        keys, place = np.unique(
            ordered(used.astype(np.uint16).view(np.int16).astype(np.int64), 16), return_inverse=True
        )
        columns = np.zeros((len(keys), table.shape[1]))
        np.add.at(columns, place, table[used])  # -0.0 joins 0.0
        values = decode(keys, 16, 0)
        return {
            "bits": 16,
            "shift": 0,
            "sums": self.sums.sum(axis=0),
            "minimum": float(values[0]),
            "maximum": float(values[-1]),
            "keys": keys,
            "counts": columns[:, 0].astype(np.int64),
            "impacts": columns[:, 1] * values,
        }
