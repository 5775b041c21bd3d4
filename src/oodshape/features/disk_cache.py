"""Features on disk: a folder per network, preprocessing and data, filled in chunks, afterwards only read.

<cache>/<key>/meta.json         what it is, for people
<cache>/<key>/features.part     the rows so far (a .npy file that is not full yet), and predictions.part
<cache>/<key>/features.npy      all rows: its name is the sign that the folder is complete
<cache>/<key>/predictions.npy
<cache>/<key>/features.sums     a checksum for each chunk, and predictions.sums
<cache>/<stamps>.images         the hash of the contents of files with these stamps, which is part of keys
<cache>/<key>/lock              held while a process fills the folder; the system frees it when that process ends
"""

from __future__ import annotations

import io
import json
import os
import shutil
import zlib
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.core.machine import cores, lock_file
from oodshape.core.reading import DAMAGE

BLOCK = 1 << 20  # bytes that are read at once


class Chunk(NamedTuple):
    """Some rows and their checksum."""

    first: int
    rows: int
    crc: int


@dataclass(frozen=True)
class ChunkSums:
    """The checksums of an array whose rows have `row_bytes` each and begin at byte `start` of its file."""

    path: Path
    start: int
    row_bytes: int

    def read(self) -> list[Chunk]:
        """The chunks in their order; ValueError or FileNotFoundError where their file is damaged or missing."""
        lines = self.path.read_bytes().splitlines()
        chunks = [Chunk(*json.loads(line)) for line in lines]
        whole = all(type(number) is int and number >= 0 for chunk in chunks for number in chunk)
        following = all(b.first == a.first + a.rows for a, b in pairwise(chunks))
        if not (chunks and whole and following):
            raise ValueError(f"{self.path} is damaged")
        return chunks

    def note(self, first: int, rows: int, data: bytes) -> None:
        """Add a chunk that begins at row `first`; those from there on are forgotten."""
        try:
            before = [chunk for chunk in self.read() if chunk.first + chunk.rows <= first]
        except (FileNotFoundError, *DAMAGE):
            before = []
        if before and before[-1].first + before[-1].rows != first:
            before = []
        with replacing(self.path) as temporary, temporary.open("wb") as file:
            for chunk in [*before, Chunk(first, rows, zlib.crc32(data))]:
                file.write(json.dumps(chunk).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def sound_rows(self, file: Path, rows: int) -> int:
        """How many of the first `rows` of a file may be used: those before the first chunk that is not as written.

        None of them where nothing is known. Rows after the last chunk were being written when a process ended.
        """
        try:
            chunks = self.read()
        except (FileNotFoundError, *DAMAGE):
            return 0
        known = [chunk for chunk in chunks if chunk.first + chunk.rows <= rows]
        with ThreadPoolExecutor(cores()) as pool:
            found = list(pool.map(partial(self._crc, file), known))
        for chunk, crc in zip(known, found, strict=True):
            if chunk.crc != crc:
                return chunk.first
        return known[-1].first + known[-1].rows if known else min(rows, chunks[0].first)

    def _crc(self, file: Path, chunk: Chunk) -> int:
        """The checksum of a chunk as it is now; read, not mapped, so that it takes no memory."""
        left, crc = chunk.rows * self.row_bytes, 0
        with file.open("rb") as data:
            data.seek(self.start + chunk.first * self.row_bytes)
            while left > 0 and (block := data.read(min(left, BLOCK))):
                crc, left = zlib.crc32(block, crc), left - len(block)
        return crc


@dataclass(frozen=True)
class Table:
    """One array of the folder, [N, ...]: a .part file that grows, then a .npy file."""

    path: Path
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    @cached_property
    def header(self) -> bytes:
        """What a .npy file of this array starts with."""
        buffer = io.BytesIO()
        said = {"descr": self.dtype.str, "fortran_order": False, "shape": self.shape}
        np.lib.format.write_array_header_1_0(buffer, said)
        return buffer.getvalue()

    @property
    def row_bytes(self) -> int:
        return self.dtype.itemsize * int(np.prod(self.shape[1:]))

    @property
    def part(self) -> Path:
        """The file that is not full yet."""
        return self.path.with_suffix(".part")

    @property
    def sums(self) -> ChunkSums:
        """The checksums of its chunks."""
        return ChunkSums(self.path.with_suffix(".sums"), len(self.header), self.row_bytes)

    def load(self) -> NDArray[Any] | None:
        """The whole array, memory-mapped; None where the file is missing, damaged or of another array."""
        try:
            array = np.load(self.path, mmap_mode="r", allow_pickle=False)
            size = self.path.stat().st_size
            sound = isinstance(array, np.memmap) and (array.shape, array.dtype) == (self.shape, self.dtype)
            sound = sound and size == array.offset + array.nbytes and array.offset == len(self.header)
            return array if sound and self.sums.sound_rows(self.path, self.shape[0]) == self.shape[0] else None
        except (OSError, *DAMAGE):
            return None

    def rows(self) -> int:
        """How many whole rows the .part file holds that are as they were written."""
        try:
            with self.part.open("rb") as file:
                if file.read(len(self.header)) != self.header:
                    return 0
                rows = min((file.seek(0, os.SEEK_END) - len(self.header)) // self.row_bytes, self.shape[0])
        except FileNotFoundError:
            return 0
        return self.sums.sound_rows(self.part, rows)

    def begun(self, rows: int) -> NDArray[Any]:
        """The first rows of the .part file, which holds as many, memory-mapped."""
        return np.memmap(self.part, self.dtype, "r", len(self.header), (rows, *self.shape[1:]))

    def put(self, first: int, values: NDArray[Any]) -> None:
        """Write rows from `first` on, on the disk before this returns; what came after them is cut off."""
        data = np.ascontiguousarray(values, self.dtype).tobytes()
        self.sums.note(first, len(values), data)  # first: a checksum without its rows harms nobody
        with self.part.open("r+b" if first else "wb") as file:
            if first == 0:
                file.write(self.header)
            file.seek(len(self.header) + first * self.row_bytes)
            file.truncate()
            file.write(data)
            file.flush()
            os.fsync(file.fileno())


class Entry:
    """The folder of one network, preprocessing and data set."""

    def __init__(self, folder: Path, shape: tuple[int, int], classes: int, dtype: str, *, gaps: bool = False) -> None:
        """The folder <cache>/<key> for [N, M] features of a network with so many classes.

        With `gaps`, the prediction -1 marks an image that could not be read.
        """
        self.folder = folder
        self.classes = classes
        self.lowest = -1 if gaps else 0
        little = np.dtype(dtype).newbyteorder("<")
        self.features = Table(folder / "features.npy", shape, little)
        self.predictions = Table(folder / "predictions.npy", shape[:1], np.dtype("<i8"))

    def load(self) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        """The features, memory-mapped, and the predictions; None unless all is there and sound."""
        features, predictions = self.features.load(), self.predictions.load()
        if features is None or predictions is None:
            return None
        if predictions.min() < self.lowest or predictions.max() >= self.classes:
            return None
        return features, np.array(predictions)

    def start(self, meta: dict[str, Any], chunk: int) -> int:
        """Say what the folder is; the first row that is still to be written comes out: a chunk's start, or N."""
        with naming_cache(self.folder):
            with replacing(self.folder / "meta.json") as temporary:
                temporary.write_text(json.dumps(meta, indent=2) + "\n")
            if self.features.path.exists():  # one of the two is not sound; others may still read them: make new files
                self.features.path.unlink()
                self.predictions.path.unlink(missing_ok=True)
                for table in (self.features, self.predictions):
                    table.sums.path.unlink(missing_ok=True)
            elif self.predictions.path.exists():  # killed between the two renames of `finish`
                self.predictions.path.replace(self.predictions.part)
            total = self.features.shape[0]
            rows = min(self.features.rows(), self.predictions.rows())
            rows = rows if rows == total else rows // chunk * chunk
            needed = (total - rows) * (self.features.row_bytes + 8)
            free = shutil.disk_usage(self.folder).free
        if needed > free:
            raise InputError(
                f"the features need {needed / 1e9:.1f} GB more in {self.folder}, {free / 1e9:.1f} GB are free; "
                'make room, give another cache folder, or use dtype="float16"'
            )
        return rows

    def begun(self, rows: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """The first rows of a folder that is not complete."""
        with naming_cache(self.folder):
            return self.features.begun(rows), self.predictions.begun(rows)

    def put(self, first: int, features: NDArray[Any], predictions: NDArray[np.int64]) -> None:
        """Write a chunk: the features before the predictions, which count as the receipt."""
        with naming_cache(self.folder):
            self.features.put(first, features)
            self.predictions.put(first, predictions)

    def finish(self) -> None:
        """Give the full files their names, the features' last."""
        with naming_cache(self.folder):
            self.predictions.part.replace(self.predictions.path)
            self.features.part.replace(self.features.path)

    def discard(self) -> None:
        with naming_cache(self.folder):
            for table in (self.features, self.predictions):
                table.part.unlink(missing_ok=True)
                table.sums.path.unlink(missing_ok=True)


@contextmanager
def lock_folder(folder: Path, waiting: Callable[[], None]) -> Iterator[None]:
    """Make the folder and hold its lock; `waiting` is called before a wait."""
    with naming_cache(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / "lock").open("ab")
    with file:
        with naming_cache(folder):
            lock_file(file.fileno(), waiting)
        yield


@contextmanager
def naming_cache(folder: Path) -> Iterator[None]:
    """Errors of the file system as one that names the folder and the way out."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise InputError(
            f"cannot keep features in {folder}: {why}; check its space and permissions, or give another cache folder"
        ) from None
