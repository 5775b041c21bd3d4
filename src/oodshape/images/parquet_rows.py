"""ParquetImages: a column of encoded images, read in runs of rows, a few of which are in memory."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.reading import one_line, reading
from oodshape.images.decode import Unreadable
from oodshape.images.places import is_remote, matched, opened, root_of, stamp
from oodshape.images.stored import Stored

COLUMN = "image"
LABEL = "label"
RUN = 32  # rows that are read together
KEPT = 32  # runs in memory: threads read a few batches of 64 ahead of each other
BUFFER = 1 << 20  # bytes of a column that are read from the disk at once


class ParquetImages(Stored):
    """The images of a column of one Parquet file or of a glob of them, a row each.

    A cell is an encoded image, or Hugging Face's {"bytes": ..., "path": ...}. A row is called by its file and its
    number there, from 0. Whole numbers in a column `label` are the labels.
    """

    def __init__(self, given: str, column: str | None = None, *, upright: bool = False) -> None:
        """Look at the files' ends, which say how many rows there are; no cell is read before it is asked for."""
        self.upright, self.column = upright, column or COLUMN
        self.files, self.root = matched(given), root_of(given)
        self.name = PurePath(given).name
        counts = []
        for file in self.files:
            with reading(file, "it must be a Parquet file"), _parquet(file) as table:
                self._check(file, table.schema_arrow)
                counts.append(table.metadata.num_rows)
        self.starts = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])
        if self.starts[-1] == 0:
            raise InputError(f"{given} has no row")
        self._cells = _Cells(self.column)

    def _check(self, file: str, schema: Any) -> None:
        import pyarrow.types as kinds

        if self.column not in schema.names:
            there = one_line(", ".join(schema.names))
            raise InputError(f"{file} has no column {self.column}; there are {there}: name one with --column, column=")
        kind = schema.field(self.column).type
        if kinds.is_struct(kind) and kind.get_field_index("bytes") >= 0:
            kind = kind.field("bytes").type
        if not (kinds.is_binary(kind) or kinds.is_large_binary(kind) or kinds.is_binary_view(kind)):
            raise InputError(f"the column {self.column} of {file} holds {kind}; it must hold encoded images (binary)")

    def __getstate__(self) -> dict[str, Any]:
        """What another process needs: what is open here stays here."""
        return {name: value for name, value in vars(self).items() if name != "_cells"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """The same images, with nothing read yet."""
        self.__dict__.update(state)
        self._cells = _Cells(self.column)

    def __len__(self) -> int:
        """The number of rows."""
        return int(self.starts[-1])

    def _place(self, index: int) -> tuple[str, int]:
        number = int(np.searchsorted(self.starts, index, side="right")) - 1
        return self.files[number], index - int(self.starts[number])

    def called(self, index: int) -> str:
        """The file and the number of the row."""
        file, row = self._place(index)
        return f"{file}/{row}"

    def below_root(self, index: int) -> str:
        """The file from the given folder, and the number of the row."""
        return self.called(index).removeprefix(f"{self.root}/" if self.root else "")

    def number(self, called: str) -> int:
        """The file's first row, and as many on."""
        file, _, row = called.rpartition("/")
        return int(self.starts[self.files.index(file)]) + int(row)

    def data(self, index: int) -> bytes:
        """The cell."""
        cell = self._cells.cell(*self._place(index))
        cell = cell.get("bytes") if isinstance(cell, dict) else cell
        if cell is None:
            raise Unreadable(self.called(index), f"has no image in the column {self.column}")
        return bytes(cell)

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """[N]: the column `label`, where there is one of whole numbers."""
        return np.concatenate([_labels(file) for file in self.files])

    @property
    def _stamps(self) -> tuple[str, ...]:
        return (self.column, *map(stamp, self.files))


class _Cells:
    """Cells by number: the last runs of rows stay in memory. Made for rows that come about in order.

    A run that lies before those in memory is read again from the start of its row group.
    """

    def __init__(self, column: str) -> None:
        self.column = column
        self._alone = threading.Lock()
        self._runs: deque[tuple[str, int, Any]] = deque(maxlen=KEPT)  # file, first row, cells
        self._next: tuple[str, int, Iterator[Any]] = "", 0, iter(())

    def cell(self, file: str, row: int) -> Any:
        """What stands in a row."""
        with self._alone:
            for of, first, cells in self._runs:
                if of == file and first <= row < first + len(cells):
                    return cells[row - first].as_py()
            of, at, runs = self._next
            if of != file or row < at or row - at > RUN * KEPT:
                at, runs = _runs(file, row, self.column)
            self._next = "", 0, iter(())  # until all went well: a reader that failed is not asked again
            for cells in runs:
                self._runs.append((file, at, cells))
                at += len(cells)
                if row < at:
                    self._next = file, at, runs
                    return cells[row - (at - len(cells))].as_py()
        raise OSError(f"the file ends before row {row}")


def _runs(file: str, row: int, column: str) -> tuple[int, Iterator[Any]]:
    """(Its first row, runs of cells) from the row group that holds a row on."""
    table = _parquet(file)
    ends = np.cumsum([table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)])
    group = int(np.searchsorted(ends, row, side="right"))
    groups = list(range(group, table.num_row_groups))
    batches = table.iter_batches(RUN, row_groups=groups, columns=[column], use_threads=False)
    return int(ends[group - 1]) if group else 0, (batch.column(0) for batch in batches)


def _labels(file: str) -> NDArray[np.int64]:
    import pyarrow.types as kinds

    with reading(file, "it must be a Parquet file"), _parquet(file) as table:
        schema, n = table.schema_arrow, table.metadata.num_rows
        if LABEL not in schema.names or not kinds.is_integer(schema.field(LABEL).type):
            return np.full(n, -1, np.int64)
        values = table.read(columns=[LABEL]).column(0)
        return np.asarray(np.maximum(values.fill_null(-1).to_numpy(), -1), np.int64)


def _parquet(file: str) -> Any:
    try:
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install 'oodshape[parquet]'") from None
    opening = opened(file) if is_remote(file) else file
    return pq.ParquetFile(opening, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True)
