"""Arrays and tables out of MATLAB files of version 5, plain or compressed.

Written here because one wrong byte can end the process inside scipy's compiled reader. Every size is held to the
bytes that are there before anything is read, and nothing calls itself: a table's cells are arrays or text. Callers read
inside `core.files.reading`, which names the file of any error.
The format: MathWorks, "MAT-File Format", chapter 1.
"""

from __future__ import annotations

import math
import struct
import zlib
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from oodshape.images.decode.limits import Limits

HEADER = 128
BLOCK = 1 << 20
STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXT = {1: "latin-1", 2: "latin-1", 4: "utf-16", 16: "utf-8", 17: "utf-16"}
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
STRUCT, CHAR, NUMBERS = 2, 4, range(6, 16)
KINDS = {1: "a cell array", 2: "a struct", 3: "an object", 4: "text", 5: "a sparse matrix"}

Cell = NDArray[Any] | str


class DamagedMatlab(ValueError):
    """The file is damaged; `reading` adds its name and the way out."""


def read_arrays(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """The numeric arrays with these names, in the types in which they are stored."""
    with path.open("rb") as file:
        return {head.name: _numbers(source, head) for head, source in _variables(file, names)}


def read_struct(path: Path, name: str, fields: Sequence[str]) -> list[dict[str, Cell]]:
    """The rows of a struct array, cut to these fields; a cell is an array or text."""
    with path.open("rb") as file:
        [rows] = [_rows(source, head, fields) for head, source in _variables(file, [name])]
        return rows


class _Source:
    """The bytes of one element in their order, plain or inflated, never more than it says it holds."""

    def __init__(self, file: BinaryIO, stored: int, order: str, *, inflate: bool = False) -> None:
        self.order = order
        self.left = stored  # what may still be taken
        self._file, self._stored = file, stored
        self._inflate = zlib.decompressobj() if inflate else None

    def take(self, count: int) -> bytearray:
        """Read exactly `count` bytes; memory grows with the data present, not with the declared size."""
        if count > self.left:
            raise DamagedMatlab(f"an element of {count} bytes stands where {self.left} are left")
        data = bytearray()
        while len(data) < count:
            piece = self._some(min(count - len(data), BLOCK))
            if not piece:
                raise DamagedMatlab(f"it is truncated: {count - len(data)} bytes of an element are missing")
            data += piece
        self.left -= count
        return data

    def numbers(self, form: str, raw: bytes | bytearray) -> tuple[int, ...]:
        """Integers in the file's byte order."""
        return struct.unpack(self.order + form, raw)

    def finish(self) -> None:
        """Run to the end of the compressed bytes, where their checksum stands."""
        extra = 0
        while self._inflate is not None and not self._inflate.eof:
            piece = self._some(8)
            extra += len(piece)
            if extra > 7 or not (piece or self._inflate.eof):  # up to 7 bytes pad an element
                raise DamagedMatlab("a compressed element does not end where it says")

    def _some(self, most: int) -> bytes:
        """Between 1 and `most` bytes; none at the end."""
        if self._inflate is None:
            return self._read(most)
        while True:
            fed = self._inflate.unconsumed_tail or self._read(BLOCK)
            piece = self._inflate.decompress(fed, most)
            if piece or self._inflate.eof or not fed:
                return piece

    def _read(self, most: int) -> bytes:
        data = self._file.read(min(most, self._stored))
        self._stored -= len(data)
        return data


class _Head(NamedTuple):
    """What stands before a matrix's content."""

    kind: int
    complex: bool
    shape: tuple[int, ...]
    name: str


def _variables(file: BinaryIO, names: Sequence[str]) -> Iterator[tuple[_Head, _Source]]:
    """The wanted variables, each with its content still to be taken; the others are passed over unread."""
    size = file.seek(0, 2)
    order = _byte_order(file, size)
    missing, at = set(names), HEADER
    while at < size:
        file.seek(at)
        top = _Source(file, size - at, order)
        kind, length = top.numbers("II", top.take(8))
        if length > top.left:
            raise DamagedMatlab(f"the element at byte {at} says {length} bytes, {top.left} follow")
        if kind not in (MATRIX, COMPRESSED):
            raise DamagedMatlab(f"an unknown element of type {kind} at byte {at}")
        at += 8 + length
        source = _Source(file, length, order, inflate=kind == COMPRESSED)
        if kind == COMPRESSED:
            source.left = 8
            kind, inflated = source.numbers("II", source.take(8))
            if kind != MATRIX:
                raise DamagedMatlab(f"{length} compressed bytes hold an element of type {kind}")
            Limits.now().check_inflated(file.name, inflated, size)
            source.left = inflated
        head = _head(source)
        if head.name in names:
            if head.name not in missing:
                raise DamagedMatlab(f"it holds {head.name} twice")
            missing.remove(head.name)
            yield head, source
            source.finish()
    if missing:
        raise DamagedMatlab(f"it holds no {' and no '.join(sorted(missing))}")


def _byte_order(file: BinaryIO, size: int) -> str:
    """`<` or `>`; refuses a file of another version."""
    file.seek(0)
    header = file.read(HEADER)
    if header.startswith((b"MATLAB 7.3", b"\x89HDF")):
        raise DamagedMatlab("it is a MATLAB file of version 7.3 (HDF5); save it again with -v7")
    order = {b"IM": "<", b"MI": ">"}.get(header[126:])
    if order is None or struct.unpack(order + "H", header[124:126]) != (0x0100,):
        raise DamagedMatlab(f"{size} bytes that do not begin with the header of a MATLAB file of version 5")
    return order


def _tag(source: _Source) -> tuple[int, int, bytes | None]:
    """An element's type and size, and its content where that is at most 4 bytes and stands in the tag itself."""
    raw = source.take(8)
    kind, size = source.numbers("II", raw)
    if kind >> 16 == 0:
        return kind, size, None
    kind, size = kind & 0xFFFF, kind >> 16
    if size > 4:
        raise DamagedMatlab(f"a short element of {size} bytes")
    return kind, size, bytes(raw[4 : 4 + size])


def _content(source: _Source, size: int, short: bytes | None) -> bytes | bytearray:
    """An element's content, and past the bytes that fill it up to 8 (the last one may lack them)."""
    if short is not None:
        return short
    data = source.take(size)
    source.take(min(-size % 8, source.left))
    return data


def _field(source: _Source, expected: Sequence[int], what: str, most: int) -> bytes | bytearray:
    """A short element of a known type."""
    kind, size, short = _tag(source)
    if kind not in expected or size > most:
        raise DamagedMatlab(f"{what} has type {kind} and {size} bytes")
    return _content(source, size, short)


def _head(source: _Source) -> _Head:
    """The class, shape and name of a matrix."""
    flags = _field(source, [UINT32], "an array's flags", 8)
    raw = _field(source, [INT32], "an array's shape", 4 * 32)  # numpy's most dimensions
    if len(flags) != 8 or len(raw) < 8 or len(raw) % 4:
        raise DamagedMatlab(f"an array with {len(flags)} bytes of flags and {len(raw)} of shape")
    flag = source.numbers("II", flags)[0]
    shape = source.numbers(f"{len(raw) // 4}i", raw)
    name = _field(source, [INT8, 16], "an array's name", 1024).decode("latin-1")
    if min(shape) < 0:
        raise DamagedMatlab(f"{name} has the shape {list(shape)}")
    return _Head(flag & 0xFF, bool(flag & 0x0800), shape, name)


def _numbers(source: _Source, head: _Head) -> NDArray[Any]:
    """The values of a numeric array, column by column as MATLAB keeps them."""
    if head.kind not in NUMBERS or head.complex:
        raise DamagedMatlab(
            f"{head.name or 'a cell'} is {KINDS.get(head.kind, 'complex or of an unknown kind')}, not numbers"
        )
    kind, size, short = _tag(source)
    count = math.prod(head.shape)
    dtype = np.dtype(source.order + STORED.get(kind, "V1"))
    if kind not in STORED or count == 0 or size != count * dtype.itemsize:
        raise DamagedMatlab(f"{head.name or 'a cell'} of shape {list(head.shape)} has {size} bytes of type {kind}")
    values = np.frombuffer(_content(source, size, short), dtype).astype(dtype.newbyteorder("="), copy=False)
    return values.reshape(head.shape, order="F")


def _text(source: _Source) -> str:
    """The characters of a char array."""
    kind, size, short = _tag(source)
    if kind not in TEXT:
        raise DamagedMatlab(f"text has type {kind}")
    coding = TEXT[kind] + ({"<": "-le", ">": "-be"}[source.order] if TEXT[kind] == "utf-16" else "")
    try:
        return bytes(_content(source, size, short)).decode(coding)
    except UnicodeDecodeError:
        raise DamagedMatlab(f"text is not {coding}") from None


def _rows(source: _Source, head: _Head, fields: Sequence[str]) -> list[dict[str, Cell]]:
    """The rows of a struct array: for each row, a matrix per field."""
    if head.kind != STRUCT:
        raise DamagedMatlab(f"{head.name} is {KINDS.get(head.kind, 'an array')}, not a struct")
    width = _field(source, [INT32], "the length of the field names", 4)
    length = source.numbers("i", width)[0] if len(width) == 4 else 0
    packed = bytes(_field(source, [INT8], "the field names", 1 << 16))
    if length < 1 or len(packed) % length:
        raise DamagedMatlab(f"{len(packed)} bytes of field names, {length} each")
    columns = [packed[at : at + length].split(b"\0")[0].decode("latin-1") for at in range(0, len(packed), length)]
    lacking = sorted(set(fields) - set(columns))
    count = math.prod(head.shape)
    if lacking or count * len(columns) * 8 > source.left:
        raise DamagedMatlab(
            f"{head.name} has {count} rows of {columns} in {source.left} bytes; needed are {list(fields)}"
        )
    rows: list[dict[str, Cell]] = []
    for _ in range(count):
        row: dict[str, Cell] = {}
        for column in columns:
            kind, size, short = _tag(source)
            if kind != MATRIX or short is not None:
                raise DamagedMatlab(f"a cell of {column} has type {kind}")
            raw = _content(source, size, short)
            if column in fields:
                cell = _Source(BytesIO(raw), len(raw), source.order)
                inner = _head(cell)
                row[column] = _text(cell) if inner.kind == CHAR else _numbers(cell, inner)
        rows.append(row)
    return rows
