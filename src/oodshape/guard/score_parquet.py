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
WAY_OUT = "give the file that `oodshape score --out` wrote"
Cells = dict[str, Any]


def write(path: Path, rows: Iterable[Cells], types: Callable[[Any], dict[str, Any]]) -> None:
    """Write rows by the names of their columns, `types(pyarrow)` in this order, and a checksum over all of them."""
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        raise InputError("Parquet needs pyarrow: pip install 'oodshape[parquet]', or write .csv or .jsonl") from None
    # the kind is written before the first row, the checksum after the last: a file with either has both
    schema = pa.schema(list(types(pa).items()), metadata={KIND: "scores"})
    left, mark = iter(rows), ""
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
        kept, mark = [], ""
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            mark = _marked(mark, table) if KIND in notes or CHECKSUM in notes else ""
            kept.append(table.select(columns))  # not read again: what was checked is what is given
        whole = sum(map(len, kept)) == file.metadata.num_rows  # a damaged directory may lack our notes too
        if not whole or mark != notes.get(CHECKSUM, b"").decode("latin-1"):
            raise InputError(f"{path} is damaged: its rows or the checksum over them are wrong; score the images again")
        for table in kept:
            yield from table.to_pylist()


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
