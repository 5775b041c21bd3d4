"""Shards of scores: which images a process scores, the note that its file has on it, and all files as one."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from oodshape.core.errors import InputError
from oodshape.core.reading import reading
from oodshape.guard import score_parquet
from oodshape.guard.score import Scored
from oodshape.images.image_set import ImageSource, Shard
from oodshape.images.listing import Listing

COLUMNS = ("path", "class", "score", "p_value", "accepted", "error")


class Mine(NamedTuple):
    """The images of one process, and what its file says of them."""

    rows: slice | range
    total: int | None = None
    note: str = ""


class Note(NamedTuple):
    """What a file of scores says of itself; files of one run differ in the shard alone."""

    shard: int
    shards: int
    images: str  # a hash of all names in their order
    guard: str  # what decides the rows beside the images


def shard_of(listing: ImageSource, shard: Shard, batch_size: int, guard: str, out: Path) -> Mine:
    """One shard of the listed images: a run of whole batches."""
    if out.suffix.lower() != ".parquet":
        raise InputError(f"the scores of a shard are a Parquet file, which says which one it is; {out} is none")
    if isinstance(listing, Listing) and listing.given == "-":
        raise InputError("standard input cannot be read twice, so it has no shards; write the paths to a list")
    names, total = blake2b(digest_size=8), 0
    for path, _ in listing.pairs():
        names.update(path.encode(errors="surrogateescape") + b"\0")
        total += 1
    rows = shard.rows(total, batch_size)
    note = Note(shard.number, shard.shards, names.hexdigest(), guard)
    return Mine(rows, len(rows), json.dumps(note._asdict()))


def merged(paths: Sequence[Path]) -> tuple[Iterator[Scored], bool]:
    """(The rows of all shards in the order of the images, whether classes have names); wrong files are named."""
    if not paths:
        raise InputError("there is nothing to merge: give the files of `oodshape score --shard`")
    first, shards, named = paths[0], dict[int, Path](), False
    notes: dict[Path, Note] = {}
    for path in paths:
        text, named = score_parquet.shard_of(path)
        if not text:
            raise InputError(f"{path} is no shard: give the Parquet files that `oodshape score --shard` wrote")
        with reading(path, score_parquet.WAY_OUT):
            notes[path] = note = Note(**json.loads(text))
        for field, what in (("guard", "another guard or batch size"), ("images", "other images")):
            if getattr(note, field) != getattr(notes[first], field):
                raise InputError(f"{path} does not belong to {first}: it was scored with {what}")
        if note.shards != notes[first].shards:
            raise InputError(
                f"{path} is one of {note.shards} shards, {first} one of {notes[first].shards}: they overlap"
            )
        if note.shard in shards:
            raise InputError(f"{path} and {shards[note.shard]} are both shard {note.shard} of {note.shards}")
        shards[note.shard] = path
    refuse_missing(shards, notes[first].shards, "score it too")
    return (row for number in sorted(shards) for row in _rows(shards[number])), named


def refuse_missing(shards: dict[int, Path], count: int, way_out: str) -> None:
    """An error that names the shards that are not there."""
    missing = count - len(shards)  # a file may speak of more shards than anyone could list
    if missing:
        first = islice((str(number) for number in range(1, count + 1) if number not in shards), 10)
        shown = ", ".join(first) + (f" and {missing - 10:,} more" if missing > 10 else "")
        raise InputError(f"shard {shown} of {count} is missing beside {min(shards.values())}: {way_out}")


def _rows(path: Path) -> Iterator[Scored]:
    for row in score_parquet.streamed(path):
        path_, label, score, p_value, accepted = (row[name] for name in COLUMNS[:5])
        yield Scored(path_, label, score, p_value, accepted, row["error"] or "")
