"""Features on disk: a folder per network, preprocessing and data, filled in chunks, afterwards only read.

<cache>/<key>/features.part     the rows so far (a .npy file that is not full yet), and predictions.part
<cache>/<key>/features.npy      all rows: its name is the sign that the folder is complete
<cache>/<key>/predictions.npy
<cache>/<key>/rows.sums         checksums of each chunk
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
from itertools import accumulate, takewhile
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import DAMAGE, replacing
from oodshape.core.machine import count_cores, lock_file

BLOCK = 1 << 20  # bytes that are read at once


class CachedChunk(NamedTuple):
    """Some rows, and the checksums of their features and predictions."""

    first: int
    rows: int
    features: int
    predictions: int


class CacheEntry:
    """The folder of one network, preprocessing and data set."""

    def __init__(self, folder: Path, shape: tuple[int, int], classes: int, dtype: str, *, gaps: bool = False) -> None:
        """The folder <cache>/<key> for [N, M] features of a network with so many classes.

        With `gaps`, the prediction -1 marks an image that could not be read.
        """
        self.folder, self.shape, self.classes, self.lowest = folder, shape, classes, -1 if gaps else 0
        self.sums = folder / "rows.sums"
        little = np.dtype(dtype).newbyteorder("<")
        self.forms = {"features": ArrayForm(shape, little), "predictions": ArrayForm(shape[:1], np.dtype("<i8"))}

    def load(self) -> tuple[NDArray[Any], NDArray[np.int64]] | None:
        """The features, memory-mapped, and the predictions; None unless all is there and sound."""
        try:
            if self.sound_rows(".npy") < self.shape[0]:
                return None
            features, predictions = self._mapped(".npy", self.shape[0])
        except (OSError, *DAMAGE):
            return None
        if predictions.min() < self.lowest or predictions.max() >= self.classes:
            return None
        return features, np.array(predictions)

    def start(self, chunk: int) -> int:
        """Return the first row that is still to be written: a chunk's start, or N."""
        whole, receipt = self.folder / "features.npy", self.folder / "predictions.npy"
        with naming_cache(self.folder):
            if whole.exists():  # one of the two is not sound; others may still read them: make new files
                for path in (whole, receipt, self.sums):
                    path.unlink(missing_ok=True)
            elif receipt.exists():  # killed between the two renames of `finish`
                receipt.replace(receipt.with_suffix(".part"))
            rows = self.sound_rows(".part")
            rows = rows if rows == self.shape[0] else rows // chunk * chunk
            needed = (self.shape[0] - rows) * sum(form.row_bytes for form in self.forms.values())
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
            return self._mapped(".part", rows)

    def put(self, first: int, features: NDArray[Any], predictions: NDArray[np.int64]) -> None:
        """Write rows from `first` on, on the disk before this returns; what came after them is cut off."""
        arrays = zip(self.forms.values(), (features, predictions), strict=True)
        data = [np.ascontiguousarray(values, form.dtype).tobytes() for form, values in arrays]
        with naming_cache(self.folder):
            before = [chunk for chunk in self._chunks() if chunk.first + chunk.rows <= first]
            # first: a checksum without its rows harms nobody
            with replacing(self.sums) as temporary, temporary.open("wb") as file:
                for chunk in [*before, CachedChunk(first, len(features), *map(zlib.crc32, data))]:
                    file.write(json.dumps(chunk).encode() + b"\n")
                _to_disk(file)
            for (name, form), part in zip(self.forms.items(), data, strict=True):
                with (self.folder / f"{name}.part").open("r+b" if first else "wb") as file:
                    if first == 0:
                        file.write(form.header)
                    file.seek(len(form.header) + first * form.row_bytes)
                    file.truncate()
                    file.write(part)
                    _to_disk(file)

    def finish(self) -> None:
        """Give the full files their names, the features' last."""
        with naming_cache(self.folder):
            for name in reversed(self.forms):
                (self.folder / f"{name}.part").replace(self.folder / f"{name}.npy")

    def discard(self) -> None:
        with naming_cache(self.folder):
            for path in (*(self.folder / f"{name}.part" for name in self.forms), self.sums):
                path.unlink(missing_ok=True)

    def _mapped(self, end: str, rows: int) -> tuple[NDArray[Any], NDArray[Any]]:
        """The first rows of both arrays, memory-mapped."""
        features, predictions = (
            np.memmap(self.folder / f"{name}{end}", form.dtype, "r", len(form.header), (rows, *form.shape[1:]))
            for name, form in self.forms.items()
        )
        return features, predictions

    def _chunks(self) -> list[CachedChunk]:
        """The chunks that were written, one after the other; none where their file is missing or damaged."""
        try:
            chunks = [CachedChunk(*json.loads(line)) for line in self.sums.read_bytes().splitlines()]
        except (FileNotFoundError, *DAMAGE):
            return []
        whole = all(type(number) is int and number >= 0 for chunk in chunks for number in chunk)
        starts = [0, *accumulate(chunk.rows for chunk in chunks)] if whole else []
        return chunks if [chunk.first for chunk in chunks] == starts[:-1] else []

    def sound_rows(self, end: str) -> int:
        """How many rows may be used: those before the first chunk that is not as it was written."""
        chunks = self._chunks()
        with ThreadPoolExecutor(count_cores()) as pool:
            found = list(pool.map(partial(self._checksums, end), chunks))
        sound = takewhile(lambda each: each[0][2:] == each[1], zip(chunks, found, strict=True))
        return min(sum(chunk.rows for chunk, _ in sound), self.shape[0])

    def _checksums(self, end: str, chunk: CachedChunk) -> tuple[int, ...]:
        """The checksums of a chunk as it is now; read, not mapped, so that it takes no memory."""
        found = []
        for name, form in self.forms.items():
            left, crc = chunk.rows * form.row_bytes, 0
            try:
                with (self.folder / f"{name}{end}").open("rb") as data:
                    if data.read(len(form.header)) != form.header:
                        return ()
                    data.seek(len(form.header) + chunk.first * form.row_bytes)
                    while left > 0 and (block := data.read(min(left, BLOCK))):
                        crc, left = zlib.crc32(block, crc), left - len(block)
            except FileNotFoundError:
                return ()
            if left > 0:
                return ()
            found.append(crc)
        return tuple(found)


@dataclass(frozen=True)
class ArrayForm:
    """The shape and type of an array of the folder, [N, ...]."""

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


def _to_disk(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


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
    """Turn errors of the file system into an InputError that names the folder and the fix."""
    try:
        yield
    except OSError as error:
        why = error.strerror or error
        raise InputError(
            f"cannot keep features in {folder}: {why}; check its space and permissions, or give another cache folder"
        ) from None
