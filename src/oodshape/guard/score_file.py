"""Scores on disk: a .part file that a killed run goes on with, then one CSV, JSON lines or Parquet file.

The .part file holds a line on what made it, then for each batch one JSON line per image in the order given and a line
with a checksum over all so far, on the disk before the next batch begins. A run that finds one checks it against its
own images, keeps the whole batches in it, and so ends with the same bytes as a run that was never killed.
"""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, Any, TextIO

from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import replacing, writing
from oodshape.core.fingerprint import fingerprint_of
from oodshape.core.machine import lock_file
from oodshape.core.progress import progress_bar
from oodshape.core.values import encode
from oodshape.core.words import counted
from oodshape.guard import score_parquet
from oodshape.guard.fitted import Fitted
from oodshape.guard.score import Scored, rows_of, score_images, see
from oodshape.guard.score_shards import COLUMNS, Mine, shard_of
from oodshape.images.image_set import ImageSource, Shard
from oodshape.images.limits import Limits
from oodshape.networks.opening import Source

FORMAT = 2  # of the .part file; since 2 with checksums
Watch = Callable[[Scored], None]


@dataclass(frozen=True)
class Tally:
    """How many images were scored, and what became of them."""

    images: int = 0
    accepted: int = 0
    rejected: int = 0
    unreadable: int = 0
    resumed: int = 0  # of the images, those that an earlier run had scored
    first_error: str = ""  # the first image that could not be read, and why

    def with_row(self, row: Scored) -> Tally:
        """The tally with one more image."""
        return Tally(
            self.images + 1,
            self.accepted + bool(row.accepted),
            self.rejected + row.rejected,
            self.unreadable + bool(row.error),
            self.resumed,
            self.first_error or (f"{row.path}: {row.error}" if row.error else ""),
        )

    def lines(self) -> list[str]:
        """What people want to know."""
        again = f" ({self.resumed:,} of them by an earlier run)" if self.resumed else ""
        said = [f"{counted(self.images, 'image')}{again}: {self.accepted:,} accepted, {self.rejected:,} rejected"]
        return said + ([f"{self.unreadable:,} could not be read; {self.first_error}"] if self.unreadable else [])


def score_to_file(
    guard: Fitted,
    source: Source,
    listing: ImageSource,
    out: Path,
    *,
    batch_size: int = 32,
    workers: int | None = None,
    progress: bool | None = None,
    watch: Watch | None = None,
    shard: Shard | None = None,
) -> Tally:
    """Write the scores of the listed images; a run that was killed before goes on where it was.

    `watch` is called with every row in the end. A `shard` of the images goes into a Parquet file that says so.
    """
    write = writer(out)
    who = identity(guard, batch_size, source.classifier.precision)
    mine = Mine(slice(None)) if shard is None else shard_of(listing, shard, batch_size, who, out)
    part = out.with_name(f"{out.name}.part")
    if not out.parent.is_dir():
        raise InputError(f"cannot write {out}: the folder {out.parent} does not exist")
    with part.open("a+b") as file:
        lock_file(file.fileno(), lambda: _refuse(part))
        pairs = islice(listing.pairs(), mine.rows.start, mine.rows.stop)
        kept, mark = _resume(file, part, who, batch_size, pairs)
        total = mine.total if shard is not None else listing.count() if progress is not False else None
        with progress_bar(listing.name, total, progress) as report:
            done = kept
            report(done)
            for batch in see(guard, source, listing, pairs, batch_size, workers=workers):
                lines = [json.dumps(row) + "\n" for row in rows_of(guard, batch)]
                rows = "".join(lines).encode()
                mark = fingerprint_of(mark, rows)
                with writing(part):
                    file.write(rows + _sealed(mark))
                    file.flush()
                    os.fsync(file.fileno())
                done += len(lines)
                report(done)
        with replacing(out) as temporary:
            counter = Counter(read_part(file), watch)
            write(temporary, counter, bool(guard.about.names), mine.note)
        part.unlink()
    return replace(counter.tally, resumed=kept)


def score_to_stream(
    guard: Fitted,
    source: Source,
    listing: ImageSource,
    file: TextIO,
    *,
    json_lines: bool = False,
    batch_size: int = 32,
    workers: int | None = None,
    watch: Watch | None = None,
) -> Tally:
    """Write the scores of the listed images as CSV or JSON lines, each batch as soon as it is known."""
    table = csv.writer(file, lineterminator="\n")
    if not json_lines:
        table.writerow(COLUMNS)
    rows = score_images(guard, source, listing, batch_size=batch_size, workers=workers, progress=False)
    counter = Counter(rows, watch)
    for row in counter:
        if json_lines:
            file.write(json.dumps(as_dict(row)) + "\n")
        else:
            table.writerow(csv_cells(row))
        if counter.tally.images % batch_size == 0:
            file.flush()
    return counter.tally


class Counter:
    """Rows that are counted, and shown to whoever watches, as they go by."""

    def __init__(self, rows: Iterable[Scored], watch: Watch | None) -> None:
        """Before the first row."""
        self.rows, self.watch, self.tally = rows, watch, Tally()

    def __iter__(self) -> Iterator[Scored]:
        """The rows."""
        for row in self.rows:
            self.tally = self.tally.with_row(row)
            if self.watch is not None:
                self.watch(row)
            yield row


def read_part(file: IO[bytes]) -> Iterator[Scored]:
    """The rows in a .part file, whose checksums were looked at before."""
    file.seek(0)
    file.readline()
    return (Scored(*json.loads(line)) for line in file if not line.startswith(SEAL))


def identity(guard: Fitted, batch_size: int, precision: str = "float32") -> str:
    """What decides the rows beside the images: the guard, how many go through the network together, own limits."""
    tensors: dict[str, NDArray[Any]] = {}
    value = encode((guard.detector, guard.about), tensors)
    value[1].pop("precision")  # the network's own counts; without a word for float32, as in files of before
    ran = "" if precision == "float32" else f" {precision}"
    arrays = (tensors[name] for name in sorted(tensors))
    return fingerprint_of(f"{FORMAT} {batch_size}{ran}", json.dumps(value), *arrays, *Limits.now().words)


SEAL = b'{"checksum": '  # how the line after a batch begins; those of images are lists


def _sealed(mark: str) -> bytes:
    return SEAL + json.dumps(mark).encode() + b"}\n"


def _resume(
    file: IO[bytes], part: Path, who: str, batch_size: int, pairs: Iterator[tuple[str, int]]
) -> tuple[int, str]:
    """(The number of rows that are kept, the last checksum); the file ends there, and `pairs` goes on after it."""
    file.seek(0)
    first = file.readline()
    if not first.endswith(b"\n"):  # new, or killed in its first line
        file.truncate(0)
        file.write(json.dumps({"oodshape": who}).encode() + b"\n")
        return 0, who
    if first != json.dumps({"oodshape": who}).encode() + b"\n":
        raise InputError(
            f"{part} was begun with another guard, batch size or release of oodshape; remove it to start anew"
        )
    end, keep, mark = file.tell(), 0, who
    for block, seal in _blocks(file, part, batch_size):
        mark_now = fingerprint_of(mark, b"".join(block))
        if seal != _sealed(mark_now):
            raise InputError(f"{part} is damaged after image {keep}: a checksum is wrong; remove it to start anew")
        # Whole batches only: a network may give other last bits in a batch of another size.
        if len(block) != batch_size:
            break
        for line in block:
            keep += 1
            path, now = Scored(*json.loads(line)).path, next(pairs, None)
            if now is None or now[0] != path:
                raise InputError(
                    f"{part} has {path} as image {keep}, but the images given have "
                    f"{now[0] if now else 'no such number'}; give the same images in the same order, or remove it"
                )
        end, mark = file.tell(), mark_now
    file.truncate(end)
    file.seek(end)
    return keep, mark


def _blocks(file: IO[bytes], part: Path, batch_size: int) -> Iterator[tuple[list[bytes], bytes]]:
    """The lines of each batch with the line that seals it; what was not sealed before a kill is left out."""
    block: list[bytes] = []
    while (line := file.readline()).endswith(b"\n"):
        if line.startswith(SEAL):
            yield block, line
            block = []
        elif len(block) == batch_size:
            raise InputError(f"{part} is damaged: a checksum is missing; remove it to start anew")
        else:
            block.append(line)


class Busy(InputError):
    """Another process writes these scores."""


def _refuse(part: Path) -> None:
    raise Busy(f"another process writes {part}; wait for it, or choose another file")


Write = Callable[..., None]  # file, rows, whether classes have names, and which shard where it is one


def writer(out: Path) -> Write:
    """The function that writes the format of a file's ending."""
    found = {".csv": _csv, ".jsonl": _json_lines, ".ndjson": _json_lines, ".parquet": _parquet}.get(out.suffix.lower())
    if found is None:
        raise InputError(f"{out} must end in .csv, .jsonl or .parquet")
    return found


def csv_cells(row: Scored) -> list[str]:
    """The cells of a row as text; float32 scores with the digits that give them back."""
    label = "" if row.label is None else str(row.label)
    if row.score is None:
        return [row.path, label, "", "", "", row.error]
    return [row.path, label, f"{row.score:.9g}", f"{row.p_value:.6g}", str(row.accepted).lower(), row.error]


def as_dict(row: Scored) -> dict[str, Any]:
    """A row by the names of its columns."""
    return dict(zip(COLUMNS, (*row[:5], row.error or None), strict=True))


def _csv(path: Path, rows: Iterable[Scored], named: bool, shard: str = "") -> None:
    with path.open("w", encoding="utf-8", errors="surrogateescape", newline="") as file:
        table = csv.writer(file, lineterminator="\n")
        table.writerow(COLUMNS)
        for row in rows:
            table.writerow(csv_cells(row))


def _json_lines(path: Path, rows: Iterable[Scored], named: bool, shard: str = "") -> None:
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(as_dict(row)) + "\n")


def _parquet(path: Path, rows: Iterable[Scored], named: bool, shard: str = "") -> None:
    def types(pa: Any) -> dict[str, Any]:
        kinds = (pa.string(), pa.string() if named else pa.int64(), pa.float32(), pa.float64(), pa.bool_(), pa.string())
        return dict(zip(COLUMNS, kinds, strict=True))

    score_parquet.write(path, map(as_dict, rows), types, shard)
