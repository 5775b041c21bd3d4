"""Chunks: runs of rows of a feature matrix in memory or in a file, or rows selected by number."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features import kernels
from oodshape.images.identity import Keys
from oodshape.networks.head import Head


class Chunked(Protocol):
    """The rows of one network's features, chunk by chunk, with their predicted classes: the input of all sums."""

    head: Head
    labels: Tensor | None  # [N] int64: the class that each image is of, -1 where none is known

    @property
    def half(self) -> bool:
        """Whether the values are float16."""

    @property
    def identities(self) -> Keys:
        """[N]: which image each row is of."""

    def __len__(self) -> int: ...

    def classified_chunks(self, *, whole: bool = False) -> Iterator[tuple[int, Tensor, Tensor]]:
        """(first row, [n, M] values, [n] predicted classes) for consecutive runs of rows.

        `whole` asks for a single run where that costs no memory.
        """


@dataclass(frozen=True, eq=False)
class RowSubset:
    """Some rows of an array, read when they are asked for."""

    base: Any  # [N, M] numpy, torch, memory-mapped, or picked itself
    rows: Tensor  # [n] int64

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.rows), int(self.base.shape[1])

    @property
    def dtype(self) -> Any:
        return self.base.dtype

    def __getitem__(self, rows: slice | Tensor) -> Any:
        """The values of some of the rows."""
        chosen = self.rows[rows]
        return self.base[chosen.numpy() if isinstance(self.base, np.ndarray) else chosen]


def check_finite(values: Tensor, first: int = 0) -> None:
    """Refuse NaN and infinite values, naming the row; `first` is the number of the first row."""
    bad = kernels.first_bad_row(values)
    if bad is not None:
        raise InputError(f"row {first + bad} of the features holds a NaN or infinite value")


def as_tensor(values: Any) -> Tensor:
    """The values as a contiguous tensor, float16 kept, anything else as float32; no copy where possible."""
    if not isinstance(values, Tensor):
        keep = values.dtype in (np.float16, np.float32) and values.dtype.isnative
        values = np.ascontiguousarray(values if keep else values.astype(np.float32))
        with warnings.catch_warnings():  # a read-only memory map is only ever read
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            values = torch.from_numpy(values)
    tensor: Tensor = values if values.dtype == torch.float16 else values.to(torch.float32)
    return tensor.contiguous()
