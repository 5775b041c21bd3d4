"""Images inside tar files and Parquet columns, on this machine or behind an address, each read by itself."""

from __future__ import annotations

import math
import tarfile
import threading
from abc import abstractmethod
from collections import deque
from collections.abc import Iterator
from functools import cached_property
from io import BytesIO
from pathlib import Path, PurePath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError, import_optional
from oodshape.core.files import DAMAGE, one_line, reading
from oodshape.images import identity
from oodshape.images.decode.formats import EXTENSIONS
from oodshape.images.decode.limits import RATIO, Limits
from oodshape.images.decode.read import Unreadable, open_image
from oodshape.images.sources.image_files import match_glob
from oodshape.images.sources.image_set import Image, IndexedImages
from oodshape.images.sources.storage import is_remote, no_image, open_stored, read_bytes, root_of, stamp_file

PACKED = (".tar.gz", ".tgz", ".tar.zst", ".tar.xz", ".tar.bz2")
BLOCK = tarfile.BLOCKSIZE  # an archive ends with blocks of zeros
FORGET = 256  # members after which the reader's own list of them is dropped
COLUMN = "image"
LABEL = "label"
RUN = 32  # rows that are read together
LARGE_RUN = 1 << 26  # bytes that they may have; rows that may be larger are read one by one
COPIES = 6  # of a cell while it is read, as measured and rounded up: the page, its dictionary, the column, the image
TOO_MUCH = "with this row, the rows take more memory than the limit of inflated"
KEPT = 32  # runs in memory: threads read a few batches of 64 ahead of each other
BUFFER = 1 << 20  # bytes of a column that are read from the disk at once


class ArchivedImages(IndexedImages):
    """Encoded images inside the files that a path or a glob stands for.

    An image is called by its file and its place there; its identity is that name from the glob's folder on.
    """

    def __init__(self, given: str, *, upright: bool) -> None:
        self.files, self.root, self.name = match_glob(given), root_of(given), PurePath(given).name
        self.upright = upright

    @abstractmethod
    def _data(self, index: int) -> bytes:
        """The encoded image."""

    def _open(self, index: int, upright: bool) -> Image:
        try:
            return open_image(BytesIO(self.encoded_bytes(index)), upright=upright)
        except Unreadable as error:
            raise Unreadable(self.called(index), error.reason) from None

    def encoded_bytes(self, index: int) -> bytes:
        """Return the encoded image; a missing or damaged file raises one kind of error for every store."""
        try:
            return self._data(index)
        except InputError:
            raise
        except (OSError, *DAMAGE) as error:
            why = (error.strerror if isinstance(error, OSError) else None) or error
            raise Unreadable(self.called(index), f"cannot be read ({one_line(why) or type(error).__name__})") from None

    @cached_property
    def identities(self) -> identity.Keys:
        """[N]: which image each is."""
        start = f"{self.root}/" if self.root else ""
        return identity.from_paths(self.called(row).removeprefix(start) for row in range(len(self)))

    def _stamps(self, contents: bool) -> tuple[Any, ...]:
        return tuple(stamp_file(file, contents=contents) for file in self.files)


class TarImages(ArchivedImages):
    """The images of one tar file or of a glob of them: archives by name, images in the order inside.

    An image is called by its archive and its path there. A member with the same key and the ending .cls holds its
    label, as WebDataset has it; a tar file inside counts as a folder. The headers are read once; an image is then
    read alone, wherever the archive lies.
    """

    def __init__(self, given: str, *, upright: bool = False) -> None:
        """Read the headers of all archives."""
        super().__init__(given, upright=upright)
        self.members: list[str] = []
        places: list[tuple[int, int, int]] = []  # archive, first byte, size
        labels: list[int] = []
        for number, archive in enumerate(self.files):
            if archive.lower().endswith(PACKED):
                raise InputError(f"{archive} is compressed: its images cannot be read one by one; unpack it to .tar")
            images, known = list[tuple[str, int, int]](), dict[str, int]()
            with reading(archive, "it must be a tar file"), open_stored(archive) as file:
                try:
                    _scan(file, images, known)
                except tarfile.TarError as error:
                    raise InputError(f"{archive} is no tar file, or ends early ({error}); copy it again") from None
            self.members += [name for name, _, _ in images]
            places += [(number, first, size) for _, first, size in images]
            labels += [known.get(_key(name), -1) for name, _, _ in images]
        if not self.members:
            raise no_image(given)
        self._places, self.labels = np.array(places, np.int64), np.array(labels, np.int64)

    def __len__(self) -> int:
        return len(self.members)

    def called(self, index: int) -> str:
        """Archive and path inside it."""
        return f"{self.files[self._places[index, 0]]}/{self.members[index]}"

    def _data(self, index: int) -> bytes:
        number, first, size = self._places[index].tolist()
        data = read_bytes(self.files[number], first, first + size)
        if len(data) < size:
            raise OSError(f"its archive ends after {len(data)} of {size} bytes")
        return data


def _scan(
    file: Any, images: list[tuple[str, int, int]], labels: dict[str, int], folder: str = "", end: float = math.inf
) -> None:
    """Add (path, first byte, size) of each image of the archive from here to `end`, and the labels by their keys.

    Archives inside count as folders.
    """
    with tarfile.open(fileobj=file, mode="r:") as tar:
        while (member := tar.next()) is not None:
            if member.offset_data + member.size > end:  # the outer archive would be read again
                raise tarfile.ReadError(f"after {len(images)} images")
            name = folder + member.name.removeprefix("./")
            if member.isreg() and not any(word.startswith(".") for word in name.split("/")):
                if name.lower().endswith(EXTENSIONS):
                    images.append((name, member.offset_data, member.size))
                elif name.endswith(".cls") and member.size < 32:
                    file.seek(member.offset_data)
                    labels[_key(name)] = _label(file.read(member.size))
                elif name.endswith(".tar") and not folder:  # as the training images of ImageNet are published
                    file.seek(member.offset_data)
                    _scan(file, images, labels, f"{name.removesuffix('.tar')}/", member.offset_data + member.size)
            if len(tar.members) >= FORGET:  # type: ignore[attr-defined]
                tar.members.clear()  # type: ignore[attr-defined]
        # Python's reader stops without a word at a damaged header, and the images after it would be lost
        file.seek(tar.offset)
        if file.read(BLOCK) != bytes(BLOCK):
            raise tarfile.ReadError(f"after {len(images)} images")


def _key(name: str) -> str:
    """What the members of one sample share: the path up to the first dot of its last word."""
    folder, slash, file = name.rpartition("/")
    return folder + slash + file.partition(".")[0]


def _label(data: bytes) -> int:
    try:
        return max(int(data), -1)
    except ValueError:
        return -1


class ParquetImages(ArchivedImages):
    """The images of a column of one Parquet file or of a glob of them, a row each.

    A cell is an encoded image, or Hugging Face's {"bytes": ..., "path": ...}. A row is called by its file and its
    number there, from 0. Whole numbers in a column `label` are the labels.
    """

    def __init__(self, given: str, column: str | None = None, *, upright: bool = False) -> None:
        """Look at the files' ends, which say how many rows there are; no cell is read before it is asked for."""
        super().__init__(given, upright=upright)
        self.column = column or COLUMN
        counts = []
        for file in self.files:
            with reading(file, "it must be a Parquet file"), _parquet(file) as table:
                self._check(file, table.schema_arrow)
                _check_columns(table)
                self._check_size(file, table.metadata)
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

    def _check_size(self, file: str, metadata: Any) -> None:
        """Refuse a row group whose images, or whose number of rows, would take far more memory than it has bytes."""
        for number in range(metadata.num_row_groups):
            chunks = _chunks(metadata.row_group(number), self.column)
            inflated = sum(each.total_uncompressed_size for each in chunks) + 8 * metadata.row_group(number).num_rows
            stored = sum(each.total_compressed_size for each in chunks)
            Limits.now().check_inflated(file, inflated, stored, copies=COPIES)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def _place(self, index: int) -> tuple[str, int]:
        number = int(np.searchsorted(self.starts, index, side="right")) - 1
        return self.files[number], index - int(self.starts[number])

    def called(self, index: int) -> str:
        """The file and the number of the row."""
        file, row = self._place(index)
        return f"{file}/{row}"

    def _data(self, index: int) -> bytes:
        cell = self._cells.cell(*self._place(index))
        cell = cell.get("bytes") if isinstance(cell, dict) else cell
        if cell is None:
            raise Unreadable(self.called(index), f"has no image in the column {self.column}")
        return bytes(cell)

    @cached_property
    def labels(self) -> NDArray[np.int64]:  # type: ignore[override]  # read when asked for
        """[N]: the column `label`, where there is one of whole numbers."""
        return np.concatenate([_label_column(file) for file in self.files])

    def _stamps(self, contents: bool) -> tuple[Any, ...]:
        return (self.column, *super()._stamps(contents))


class _Cells:
    """Cells by number: the last runs of rows stay in memory. Made for rows that come about in order.

    A run that lies before those in memory is read again from the start of its row group.
    """

    def __init__(self, column: str) -> None:
        self.column = column
        self._alone = threading.Lock()
        self._runs: deque[tuple[str, int, Any]] = deque(maxlen=KEPT)  # file, first row, cells
        self._next: tuple[str, int, Iterator[Any]] = "", 0, iter(())
        self._most = 0  # bytes of all runs in memory
        self._ends: dict[str, int] = {}  # file -> its first row that is refused, so that it is not read for each one

    def __reduce__(self) -> tuple[Any, ...]:
        """In another process nothing is read yet."""
        return _Cells, (self.column,)

    def cell(self, file: str, row: int) -> Any:
        """What stands in a row."""
        with self._alone:
            for of, first, cells in self._runs:
                if of == file and first <= row < first + len(cells):
                    return cells[row - first].as_py()
            if row >= self._ends.get(file, row + 1):
                raise OSError(TOO_MUCH)
            of, at, runs = self._next
            if of != file or row < at or row - at > RUN * KEPT:
                at, runs, self._most = _runs(file, row, self.column)
            self._next = "", 0, iter(())  # until all went well: a reader that failed is not asked again
            for cells in runs:
                if cells is None:
                    self._ends[file] = at
                    raise OSError(TOO_MUCH)
                self._runs.append((file, at, cells))
                while len(self._runs) > 1 and sum(kept.nbytes for *_, kept in self._runs) > self._most:
                    self._runs.popleft()
                at += len(cells)
                if row < at:
                    self._next = file, at, runs
                    return cells[row - (at - len(cells))].as_py()
        raise OSError(f"the file ends before row {row}")


def _runs(file: str, row: int, column: str) -> tuple[int, Iterator[Any], int]:
    """(Its first row, runs of cells, how many bytes to keep) from the row group that holds a row on."""
    table = _parquet(file)
    ends = np.cumsum([table.metadata.row_group(group).num_rows for group in range(table.num_row_groups)])
    group = int(np.searchsorted(ends, row, side="right"))
    groups = list(range(group, table.num_row_groups))
    chunks = [_chunks(table.metadata.row_group(number), column) for number in groups]
    # a value in a dictionary may stand in every row, and no cell has more bytes than the dictionaries of its row group
    largest = max(sum(each.total_uncompressed_size for each in parts if each.has_dictionary_page) for parts in chunks)
    rows = min(RUN, max(1, LARGE_RUN // max(largest, 1)))
    batches = table.iter_batches(rows, row_groups=groups, columns=[column], use_threads=False)
    stored, most = sum(each.total_compressed_size for parts in chunks for each in parts), Limits.now().inflated
    kept = max(most // COPIES, min(most, RATIO * stored))
    return int(ends[group - 1]) if group else 0, _limited(batches, stored), kept


def _limited(batches: Iterator[Any], stored: int) -> Iterator[Any]:
    """Runs of cells; None where one or all so far take too much memory for the bytes that are stored."""
    total, most = 0, Limits.now().inflated
    for batch in batches:
        total += batch.nbytes
        yield None if batch.nbytes > most or total > max(most, RATIO * stored) else batch.column(0)


def _chunks(group: Any, column: str) -> list[Any]:
    """What the metadata says about the parts of a column in a row group."""
    every = [group.column(number) for number in range(group.num_columns)]
    return [each for each in every if each.path_in_schema.split(".")[0] == column]


def _label_column(file: str) -> NDArray[np.int64]:
    import pyarrow.types as kinds

    with reading(file, "it must be a Parquet file"), _parquet(file) as table:
        schema, n = table.schema_arrow, table.metadata.num_rows
        if LABEL not in schema.names or not kinds.is_integer(schema.field(LABEL).type):
            return np.full(n, -1, np.int64)
        values = table.read(columns=[LABEL]).column(0)
        return np.asarray(np.maximum(values.fill_null(-1).to_numpy(), -1), np.int64)


def check_table(path: str | Path) -> None:
    """Refuse a Parquet table whose rows would take far more memory than it has bytes.

    Its metadata does not tell how often a value of a dictionary stands in the rows; the dictionary's indices do.
    """
    pq = import_optional("pyarrow.parquet", "parquet", "Parquet")
    import pyarrow.compute as pc
    import pyarrow.types as kinds

    schema = pq.read_schema(path)
    texts = [each.name for each in schema if kinds.is_string(each.type) or kinds.is_binary(each.type)]
    if any(kinds.is_nested(each.type) for each in schema):
        raise InputError(f"{path} has a column of lists or tables; remove it")
    with pq.ParquetFile(path, read_dictionary=texts, page_checksum_verification=True) as file:
        _check_columns(file)
        for number in range(file.num_row_groups):
            group = file.metadata.row_group(number)
            stored = sum(group.column(place).total_compressed_size for place in range(group.num_columns))
            size = group.total_byte_size + 8 * group.num_rows * group.num_columns
            Limits.now().check_inflated(path, size, stored)
            for column in file.read_row_group(number, columns=texts).columns:
                for chunk in column.chunks:
                    size += pc.sum(pc.binary_length(chunk.dictionary).take(chunk.indices)).as_py() or 0
            Limits.now().check_inflated(path, size, stored)


def _check_columns(table: Any) -> None:
    """Read no row of each row group: an error where pyarrow ends the process if it is asked about a damaged column."""
    for number in range(table.num_row_groups if table.metadata.num_columns else 0):
        next(table.reader.iter_batches(0, [number], use_threads=False), None)


def _parquet(file: str) -> Any:
    pq = import_optional("pyarrow.parquet", "parquet", "Parquet")
    opening = open_stored(file) if is_remote(file) else file
    return pq.ParquetFile(opening, buffer_size=BUFFER, pre_buffer=False, page_checksum_verification=True)
