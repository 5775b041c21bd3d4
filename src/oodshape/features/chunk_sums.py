"""Checksums of the chunks of an array on disk: a line [first row, rows, CRC-32] for each, in a file beside it.

CRC-32, since it is read at the pace of the disk and finds any damage that is no forgery: a cache is our own.
"""

from __future__ import annotations

import json
import os
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from oodshape.core.files import replacing
from oodshape.core.machine import cores
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

    def read(self) -> list[Chunk] | None:
        """The chunks in their order; None where there is no file, as beside caches of 0.1.0: they are unverified.

        ValueError for a file that is damaged itself.
        """
        try:
            lines = self.path.read_bytes().splitlines()
        except FileNotFoundError:
            return None
        chunks = [Chunk(*json.loads(line)) for line in lines]
        whole = all(type(number) is int and number >= 0 for chunk in chunks for number in chunk)
        following = all(b.first == a.first + a.rows for a, b in pairwise(chunks))
        if not (chunks and whole and following):
            raise ValueError(f"{self.path} is damaged")
        return chunks

    def note(self, first: int, rows: int, data: bytes) -> None:
        """Add a chunk that begins at row `first`; those from there on are forgotten."""
        try:
            before = [chunk for chunk in self.read() or () if chunk.first + chunk.rows <= first]
        except DAMAGE:
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

        All of them where nothing is known. Rows after the last chunk were being written when a process ended.
        """
        try:
            chunks = self.read()
        except DAMAGE:
            return 0
        if chunks is None:
            return rows
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
