"""Score files: CSV, JSON lines or Parquet, written by `oodshape score`, read by `watch`, `decide` and `merge`.

Text has no checksum, so every value that is read must be one that `score` can write. Parquet has a checksum for each
page but none for its directory, so a checksum over all rows is stored with it. This module does without torch.
"""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from oodshape.core.errors import InputError, import_optional
from oodshape.core.files import LONGEST, any_names, bounded_lines, compute_fingerprint, one_line, reading, replacing
from oodshape.core.text import format_count
from oodshape.guard.verdict import Scored
from oodshape.images.sources.archives import check_table
from oodshape.images.sources.image_set import Shard, order_shards

COLUMNS = ("path", "class", "score", "p_value", "accepted", "error")
P_VALUE = ("p_value", "p-value", "p")
WRITTEN = frozenset(["score", "p_value", "accepted", "error"])  # a table with these columns was written by `score`
DECISIONS = {"true": True, "false": False, True: True, False: False}
EMPTY = (None, "")
QUOTED = re.compile(r'[",\r\n\t]|^[ =+@]|^-(?![\d.e+-]*$)| $')
GROUP = 1 << 16  # rows of a Parquet row group
KIND, CHECKSUM, SHARD = b"oodshape", b"oodshape_checksum", b"oodshape_shard"  # keys of a Parquet file's metadata
ADVICE = "give the file that `oodshape score --out` wrote"
Cells = dict[str, Any]


@dataclass(frozen=True)
class ScoreRow:
    """One row of a score file."""

    p_value: float | None  # None: the image could not be read
    label: str  # the predicted class; empty where the table has no such column
    score: float | None  # None: not a finite number, which only tables of other programs have
    cells: Cells  # all columns as the file has them

    @property
    def accepted(self) -> bool | None:
        """The decision, where the table has one."""
        found = self.cells.get("accepted")
        return DECISIONS.get(found) if isinstance(found, (str, bool)) else None


def read_scores(path: str, *, follow: bool = False, complete: bool = False, pause: float = 0.5) -> Iterator[ScoreRow]:
    """Read the rows of a score file in their order.

    Args:
        path: a CSV, JSON lines or Parquet file, or `-` for CSV or JSON lines on standard input.
        follow: wait for rows that are added to a text file later.
        complete: skip a last line without an end, which may still be written.
        pause: seconds between two looks at a file that is followed.

    Raises:
        InputError: a row that `score` cannot have written, by its place and its value.
    """
    if path == "-":
        yield from parse_scores(bounded_lines(any_names(sys.stdin), "standard input"), "standard input")
    elif not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    elif path.endswith(".parquet"):
        parser = _RowParser()
        for number, cells in enumerate(_read_parquet(path), 1):
            if number == 1:
                _check_columns(list(cells), path)
            yield parser.parse(cells, f"row {number} of {path}")
    else:
        yield from parse_scores(_lines(path, follow, complete, pause), path)


def parse_scores(lines: Iterable[str], where: str = "the scores") -> Iterator[ScoreRow]:
    """Read rows from the lines of a CSV table with a header, or from JSON lines.

    >>> [row.p_value for row in parse_scores(["path,p_value", "a.png,0.25", "broken.png,", "b.png,1.0"])]
    [0.25, None, 1.0]
    """
    parser, names, left = _RowParser(), list[str](), iter(lines)
    number = 0
    for line in left:
        number += 1
        place = f"line {number} of {where}"
        if not line.strip():
            continue
        if line.lstrip().startswith("{"):
            yield parser.parse(_parse(line, place, is_json=True), place)
            continue
        while line.count('"') % 2 and len(line) <= LONGEST and (more := next(left, "")):
            line, number = line + more, number + 1  # a file's name may contain a line break
        cells = _parse(line, place, is_json=False)
        if not names:
            _check_columns(cells, where)
            names = cells
        elif len(cells) != len(names):
            raise InputError(f"{place} has {len(cells)} columns, the first line {len(names)}")
        else:
            yield parser.parse(dict(zip(names, cells, strict=True)), place)


def _lines(path: str, follow: bool, complete: bool, pause: float) -> Iterator[str]:
    with open(path, encoding="utf-8", errors="surrogateescape", newline="\n") as file:  # names may be any bytes
        rest = ""
        while True:
            part = file.readline(LONGEST + 1)
            if len(rest + part) > LONGEST:
                raise InputError(f"{path} has a line of more than {LONGEST:,} characters; {ADVICE}")
            if part.endswith("\n"):
                yield rest + part
                rest = ""
            elif part:
                rest += part  # a line that is still being written
            elif follow:
                time.sleep(pause)
            else:
                break
        if rest and not complete:
            yield rest


def _check_columns(names: list[str], where: str) -> None:
    if not set(P_VALUE) & set(names):
        raise InputError(f"{where} has no column {P_VALUE[0]}; there are {one_line(', '.join(names))}")
    twice = next((name for name in names if name in (*P_VALUE, *WRITTEN) and names.count(name) > 1), None)
    if twice is not None:
        raise InputError(f"{where} has the column {twice} twice; keep one")


def _parse(line: str, place: str, *, is_json: bool) -> Any:
    """The cells of a line: by name in JSON, a list in CSV."""
    try:
        return json.loads(line) if is_json else next(csv.reader([line]))
    except (ValueError, RecursionError, csv.Error) as error:
        raise InputError(f"{place} is no {'JSON' if is_json else 'CSV'}: {one_line(error)}") from None


class _RowParser:
    """Checks rows one after the other: no image is accepted with a p-value below that of a rejected one.

    In a table of `score` an image has a finite score, a p-value and a decision, or an error and none of them. Other
    tables only need p-values.
    """

    def __init__(self) -> None:
        self._rejected, self._accepted = (0.0, ""), (math.inf, "")  # the extreme p-values so far, and where they are

    def parse(self, cells: Cells, place: str) -> ScoreRow:
        value = next((cells[name] for name in P_VALUE if name in cells), None)
        p: float | None = None
        if value not in EMPTY and not math.isnan(number := _number(value)):
            if number <= 0 or number > 1:
                raise InputError(f"{place}: {_shown(value)} is no p-value, which lies in (0, 1]")
            p = number
        score = _number(cells.get("score"))
        if cells.keys() >= WRITTEN:
            self._check_written(cells, p, score, place)
        label = cells.get("class")
        return ScoreRow(p, "" if label is None else str(label), score if math.isfinite(score) else None, cells)

    def _check_written(self, cells: Mapping[str, Any], p: float | None, score: float, place: str) -> None:
        accepted, error = cells["accepted"], cells["error"]
        if p is None:
            if cells["score"] not in EMPTY or accepted not in EMPTY or error in EMPTY:
                found = f"score {_shown(cells['score'])}, accepted {_shown(accepted)}, error {_shown(error)}"
                raise InputError(f"{place} has no p-value, but {found}: an unreadable image only has an error")
            return
        if error not in EMPTY:
            raise InputError(f"{place} has the p-value {p:g} and the error {_shown(error)}: only one can be true")
        if not math.isfinite(score):
            raise InputError(f"{place}: {_shown(cells['score'])} is no score, which is a finite number")
        decision = DECISIONS.get(accepted) if isinstance(accepted, (str, bool)) else None
        if decision is None:
            raise InputError(f"{place}: {_shown(accepted)} is no decision, which is true or false")
        if decision:
            self._accepted = min(self._accepted, (p, place), key=lambda each: each[0])
        else:
            self._rejected = max(self._rejected, (p, place), key=lambda each: each[0])
        if self._accepted[0] < self._rejected[0]:
            raise InputError(
                f"{self._accepted[1]} is accepted with the p-value {self._accepted[0]:g}, {self._rejected[1]} rejected "
                f"with {self._rejected[0]:g}: one is damaged, or two guards wrote the file; score the images again, "
                "into one file per guard"
            )


def _number(value: Any) -> float:
    """The number in a cell; -inf, which is neither a p-value nor a score, where there is none."""
    try:
        return -math.inf if isinstance(value, bool) else float(str(value))
    except ValueError:
        return -math.inf


def _shown(value: Any) -> str:
    return one_line(repr(value), 40)


OnRow = Callable[[Scored], None]


@dataclass
class Counts:
    """Counts of accepted, rejected and unreadable images."""

    images: int = 0
    accepted: int = 0
    rejected: int = 0
    unreadable: int = 0
    resumed: int = 0  # of the images, those that an earlier run had scored
    first_error: str = ""  # the first image that could not be read, and why

    def count(self, rows: Iterable[Scored], on_row: OnRow | None = None) -> Iterator[Scored]:
        """Count rows while they are iterated over, and call `on_row` with each."""
        for row in rows:
            self.images += 1
            self.accepted += bool(row.accepted)
            self.rejected += row.rejected
            self.unreadable += bool(row.error)
            self.first_error = self.first_error or (f"{row.path}: {row.error}" if row.error else "")
            if on_row is not None:
                on_row(row)
            yield row

    def lines(self) -> list[str]:
        again = f" ({self.resumed:,} of them by an earlier run)" if self.resumed else ""
        said = [f"{format_count(self.images, 'image')}{again}: {self.accepted:,} accepted, {self.rejected:,} rejected"]
        return said + ([f"{self.unreadable:,} could not be read; {self.first_error}"] if self.unreadable else [])


def check_format(out: Path) -> str:
    """Return the ending of a score file, which says its format; refuse others, and Parquet without its library."""
    ending = out.suffix.lower()
    if ending not in (".csv", ".jsonl", ".ndjson", ".parquet"):
        raise InputError(f"{out} must end in .csv, .jsonl or .parquet")
    if ending == ".parquet":
        import_parquet()
    return ending


def write_scores(out: Path, rows: Iterable[Scored], *, named: bool, shard: str = "") -> None:
    """Write rows atomically in the format of the file's ending; a `shard` has a note in its Parquet file."""
    ending = check_format(out)
    with replacing(out) as temporary:
        if ending == ".parquet":
            _write_parquet(temporary, rows, named, shard)
        else:
            write_text(temporary, map(row_as_dict, rows), ending, COLUMNS)


def write_text(path: Path, rows: Iterable[Cells], ending: str, columns: Sequence[str] = ()) -> None:
    """Write rows as CSV or JSON lines."""
    with open_text(path) as file:
        if ending == ".csv":
            write_csv(rows, file, columns)
        else:
            write_json_lines(rows, file)


def row_as_dict(row: Scored) -> Cells:
    """Return a row by the names of its columns."""
    return dict(zip(COLUMNS, (*row[:5], row.error or None), strict=True))


def write_csv(rows: Iterable[Cells], file: Any, columns: Sequence[str] = ()) -> None:
    """Write rows as CSV, the header before the first of them, or at once where the columns are given."""
    if columns:
        file.write(",".join(map(_quoted, columns)) + "\n")
    for number, row in enumerate(rows):
        if number == 0 and not columns:
            file.write(",".join(map(_quoted, row)) + "\n")
        file.write(",".join(_cell(name, value) for name, value in row.items()) + "\n")


def _cell(name: str, value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "" if value is None else str(value).lower()
    # nine digits give a float32 back; `str` gives a float64 back, as every p-value is
    return f"{value:.9g}" if isinstance(value, float) and name == "score" else _quoted(str(value))


def _quoted(text: str) -> str:
    """A cell, quoted where a reader needs it: Python's writer leaves a CR bare, and a spreadsheet runs formulas."""
    return '"' + text.replace('"', '""') + '"' if QUOTED.search(text) else text


def write_json_lines(rows: Iterable[Cells], file: Any) -> None:
    """Write a JSON object per row."""
    file.writelines(json.dumps(row) + "\n" for row in rows)


def open_text(path: Path) -> Any:
    """Open a text file to write to; names of files may be any bytes."""
    return path.open("w", encoding="utf-8", errors="surrogateescape", newline="")


def _write_parquet(path: Path, rows: Iterable[Scored], named: bool, shard: str) -> None:
    pa, pq = import_parquet()
    types = (pa.string(), pa.string() if named else pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string())
    # the kind is written before the first row, the checksum after the last: a file with either has both
    schema = pa.schema(
        list(zip(COLUMNS, types, strict=True)), metadata={KIND: "scores"} | ({SHARD: shard} if shard else {})
    )
    left, mark = map(row_as_dict, rows), compute_fingerprint(shard) if shard else ""
    with pq.ParquetWriter(path, schema, write_page_checksum=True) as file:
        while part := list(islice(left, GROUP)):
            table = pa.table({name: [_utf8(row[name]) for row in part] for name in COLUMNS}, schema=schema)
            file.write_table(table)
            mark = _add_to_checksum(mark, table)
        file.add_key_value_metadata({CHECKSUM.decode(): mark})


def _read_parquet(path: str | Path) -> Iterator[Cells]:
    """Read the rows of a Parquet file; the checksum of one that `score` wrote is verified before the first row."""
    with reading(path, ADVICE):
        check_table(path)
    with reading(path, ADVICE), import_parquet()[1].ParquetFile(path, page_checksum_verification=True) as file:
        notes = (file.schema_arrow.metadata or {}) | (file.metadata.metadata or {})
        ours = KIND in notes or CHECKSUM in notes
        mark, found = compute_fingerprint(notes[SHARD]) if SHARD in notes else "", 0
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            mark, found = _add_to_checksum(mark, table) if ours else "", found + len(table)
        # a damaged directory may lack our metadata too
        if found != file.metadata.num_rows or mark != notes.get(CHECKSUM, b"").decode("latin-1"):
            raise InputError(f"{path} is damaged: its rows or the checksum over them are wrong; score the images again")
        for group in range(file.num_row_groups):
            for batch in file.read_row_group(group).to_batches(1024):
                yield from batch.to_pylist()


def _read_shard_note(path: str | Path) -> tuple[str, bool]:
    """Return (the note on which shard a Parquet file is, empty where it is none; whether its classes have names)."""
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    with reading(path, ADVICE), import_parquet()[1].ParquetFile(path) as file:
        note = (file.schema_arrow.metadata or {}).get(SHARD, b"").decode()
        return note, bool(note) and str(file.schema_arrow.field("class").type) == "string"


class ShardNote(NamedTuple):
    """The note in the file of a shard; files of one run differ only in the shard."""

    shard: int
    shards: int
    images: str  # a hash of all names in their order
    guard: str  # `identity`


def merge_shards(paths: Sequence[Path]) -> tuple[Iterator[Scored], bool]:
    """Return (the rows of all shards in the order of the images, whether classes have names)."""
    if not paths:
        raise InputError("there is nothing to merge: give the files of `oodshape score --shard`")
    notes, named = dict[Path, ShardNote](), False
    for path in paths:
        text, named = _read_shard_note(path)
        if not text:
            raise InputError(f"{path} is no shard: give the Parquet files that `oodshape score --shard` wrote")
        with reading(path, ADVICE):
            notes[path] = note = ShardNote(**json.loads(text))
        for field, what in (("guard", "another guard or batch size"), ("images", "other images")):
            if getattr(note, field) != getattr(notes[paths[0]], field):
                raise InputError(f"{path} does not belong to {paths[0]}: it was scored with {what}")
    ordered = order_shards({path: Shard(note.shard, note.shards) for path, note in notes.items()}, "score it too")
    rows = (Scored(*cells.values()) for path in ordered for cells in _read_parquet(path))
    return (row._replace(error=row.error or "") for row in rows), named


def import_parquet() -> tuple[Any, Any]:
    """Import pyarrow and its Parquet module, or say how to install them."""
    pa = import_optional("pyarrow", "parquet", "Parquet")
    return pa, import_optional("pyarrow.parquet", "parquet", "Parquet")


def _utf8(value: Any) -> Any:
    """Parquet strings are UTF-8; a file's name may be any bytes."""
    return os.fsencode(value).decode("utf-8", "replace") if isinstance(value, str) else value


def _add_to_checksum(mark: str, table: Any) -> str:
    """Return the checksum after some more rows: over their names, types, gaps and values."""
    parts: list[str | NDArray[Any]] = [mark]
    for field, column in zip(table.schema, table.columns, strict=True):
        parts += [f"{field.name} {field.type}", column.is_null().to_numpy(zero_copy_only=False)]
        if str(field.type) == "string":
            parts.append("\0".join(each or "" for each in column.to_pylist()))
        else:
            parts.append(column.fill_null(str(field.type) != "bool" and 0).to_numpy(zero_copy_only=False))
    return compute_fingerprint(*parts)
