"""Scores as Parquet: checksums of its pages, and one over all rows, since Parquet has none of its directory."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.core.reading import one_line, reading

ROWS = 1 << 16  # that are held at a time
KIND, CHECKSUM = b"oodshape", b"oodshape_checksum"  # names in the file's own table of notes
SHARD = b"oodshape_shard"  # which of several files it is, where it is one of several
WAY_OUT = "give the file that `oodshape score --out` wrote"
Cells = dict[str, Any]


def write(path: Path, rows: Iterable[Cells], types: Callable[[Any], dict[str, Any]], shard: str = "") -> None:
    """Write rows by the names of their columns, `types(pyarrow)` in this order, and a checksum over all of them.

    `shard` is a note on which of several files it is; it is in the checksum.
    """
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install 'oodshape[parquet]', or write .csv or .jsonl") from None
    # the kind is written before the first row, the checksum after the last: a file with either has both
    notes = {KIND: "scores"} | ({SHARD: shard} if shard else {})
    schema = pa.schema(list(types(pa).items()), metadata=notes)
    left, mark = iter(rows), fingerprint_of(shard) if shard else ""
    with pq.ParquetWriter(path, schema, write_page_checksum=True) as file:
        while part := list(islice(left, ROWS)):
            table = pa.table({name: [_cell(row[name]) for row in part] for name in schema.names}, schema=schema)
            file.write_table(table)
            mark = _marked(mark, table)
        file.add_key_value_metadata({CHECKSUM.decode(): mark})


def read(path: str | Path, names: Collection[str]) -> Iterator[Cells]:
    """The rows of a Parquet file, cut to those of these columns that it has.

    A file of ours is held to its checksum before the first row is given; those of 0.1.0 and of others have none.
    """
    import pyarrow.parquet as pq

    with reading(path, WAY_OUT), pq.ParquetFile(path, page_checksum_verification=True) as file:
        columns = [name for name in file.schema_arrow.names if name in names]
        if not columns:
            raise InputError(f"{path} has no column {next(iter(names))}; there are {one_line(file.schema_arrow.names)}")
        notes = (file.schema_arrow.metadata or {}) | (file.metadata.metadata or {})
        kept, mark = [], _begun(notes)
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            mark = _marked(mark, table) if KIND in notes or CHECKSUM in notes else ""
            kept.append(table.select(columns))  # not read again: what was checked is what is given
        whole = sum(map(len, kept)) == file.metadata.num_rows  # a damaged directory may lack our notes too
        if not whole or mark != notes.get(CHECKSUM, b"").decode("latin-1"):
            raise InputError(f"{path} is damaged: its rows or the checksum over them are wrong; score the images again")
        for table in kept:
            yield from table.to_pylist()


def shard_of(path: str | Path) -> tuple[str, bool]:
    """(The note on which of several files it is, empty where there is none; whether classes have names.)"""
    import pyarrow.parquet as pq

    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    with reading(path, WAY_OUT), pq.ParquetFile(path) as file:
        note = (file.schema_arrow.metadata or {}).get(SHARD, b"").decode()
        return note, bool(note) and str(file.schema_arrow.field("class").type) == "string"


def streamed(path: str | Path) -> Iterator[Cells]:
    """The rows of a file of ours, some at a time: held to its checksum first, and read again."""
    import pyarrow.parquet as pq

    with reading(path, WAY_OUT), pq.ParquetFile(path, page_checksum_verification=True) as file:
        notes = (file.schema_arrow.metadata or {}) | (file.metadata.metadata or {})
        mark, found = _begun(notes), 0
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            mark, found = _marked(mark, table), found + len(table)
        if found != file.metadata.num_rows or mark != notes.get(CHECKSUM, b"").decode("latin-1"):
            raise InputError(f"{path} is damaged: its rows or the checksum over them are wrong; score the images again")
        for group in range(file.num_row_groups):
            for batch in file.read_row_group(group).to_batches(1024):  # read as it was for the checksum
                yield from batch.to_pylist()


def _begun(notes: dict[bytes, bytes]) -> str:
    """The checksum before the first row."""
    return fingerprint_of(notes[SHARD]) if SHARD in notes else ""


def _cell(value: Any) -> Any:
    """A name that is no UTF-8 keeps what can be read of it."""
    return os.fsencode(value).decode("utf-8", "replace") if isinstance(value, str) else value


def _marked(mark: str, table: Any) -> str:
    """The checksum after some more rows: over their names, types, gaps and values."""
    parts: list[str | NDArray[Any]] = [mark]
    for field, column in zip(table.schema, table.columns, strict=True):
        parts += [f"{field.name} {field.type}", column.is_null().to_numpy(zero_copy_only=False)]
        if str(field.type) == "string":
            parts.append("\0".join(each or "" for each in column.to_pylist()))
        else:
            parts.append(column.fill_null(str(field.type) != "bool" and 0).to_numpy(zero_copy_only=False))
    return fingerprint_of(*parts)
