"""Scores on disk: a .part file that a killed run goes on with, then one CSV, JSON lines or Parquet file.

The .part file holds a line on what made it, then for each batch one JSON line per image in the order given and a line
with a checksum over all so far, on the disk before the next batch begins. A run that finds one checks it against its
own images, keeps the whole batches in it, and so ends with the same bytes as a run that was never killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import IO, Any, TextIO

from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import compute_fingerprint, writing
from oodshape.core.machine import lock_file
from oodshape.core.options import RunOptions
from oodshape.core.progress import progress_bar
from oodshape.core.values import encode_value
from oodshape.guard.fitted import Fitted
from oodshape.guard.scoring.score_formats import (
    Counts,
    OnRow,
    ShardNote,
    check_format,
    row_as_dict,
    write_csv,
    write_json_lines,
    write_scores,
)
from oodshape.guard.scoring.score_images import make_rows, score_images, score_listed
from oodshape.guard.verdict import Scored
from oodshape.images.decode.limits import Limits
from oodshape.images.sources.image_set import Shard
from oodshape.images.sources.open_images import ImageSource, StandardInput
from oodshape.networks.loading import OpenNet


def score_to_file(
    guard: Fitted,
    source: OpenNet,
    listing: ImageSource,
    out: Path,
    run: RunOptions = RunOptions(),
    *,
    on_row: OnRow | None = None,
    shard: Shard | None = None,
) -> Counts:
    """Write the scores of the listed images; a run that was killed before goes on where it was.

    `on_row` is called with every row in the end. A `shard` of the images goes into a Parquet file that says so.
    """
    check_format(out)
    batch_size = run.batch_size
    who = identify_run(guard, batch_size, source.classifier.precision)
    mine, note = (None, "") if shard is None else plan_shard(listing, shard, batch_size, who)
    part = out.with_name(f"{out.name}.part")
    if not out.parent.is_dir():
        raise InputError(f"cannot write {out}: the folder {out.parent} does not exist")
    with part.open("a+b") as file:
        lock_file(file.fileno(), lambda: _refuse(part))
        pairs = listing.pairs() if mine is None else islice(listing.pairs(), mine.start, mine.stop)
        kept, mark = _resume(file, part, who, batch_size, pairs)
        total = len(mine) if mine is not None else listing.count() if run.progress is not False else None
        with progress_bar(listing.name, total, run.progress) as report:
            done = kept
            report(done)
            for batch in score_listed(guard, source, listing, pairs, run):
                lines = [json.dumps(row) + "\n" for row in make_rows(guard, batch)]
                rows = "".join(lines).encode()
                mark = compute_fingerprint(mark, rows)
                with writing(part):
                    file.write(rows + _sealed(mark))
                    file.flush()
                    os.fsync(file.fileno())
                done += len(lines)
                report(done)
        counts = Counts(resumed=kept)
        write_scores(out, counts.count(read_part_file(file), on_row), named=bool(guard.classes), shard=note)
        part.unlink()
    return counts


def score_to_stream(
    guard: Fitted,
    source: OpenNet,
    listing: ImageSource,
    file: TextIO,
    run: RunOptions = RunOptions(),
    *,
    json_lines: bool = False,
    on_row: OnRow | None = None,
) -> Counts:
    """Write the scores of the listed images as CSV or JSON lines, each batch as soon as it is known."""
    rows = score_images(guard, source, listing, replace(run, progress=False))
    counts = Counts()

    def cells() -> Iterator[dict[str, Any]]:
        for row in counts.count(rows, on_row):
            yield row_as_dict(row)
            if counts.images % run.batch_size == 0:
                file.flush()

    (write_json_lines if json_lines else write_csv)(cells(), file)
    return counts


def read_part_file(file: IO[bytes]) -> Iterator[Scored]:
    """The rows in a .part file, whose checksums were looked at before."""
    file.seek(0)
    file.readline()
    return (Scored(*json.loads(line)) for line in file if not line.startswith(SEAL))


def identify_run(guard: Fitted, batch_size: int, precision: str = "float32") -> str:
    """Identify a run: the guard, the batch size and the limits, which determine the rows of given images."""
    tensors: dict[str, NDArray[Any]] = {}
    value = encode_value((guard.detector, guard.about), tensors)
    value[1].pop("precision")  # that of the fit; the one in which the network runs now counts
    arrays = (tensors[name] for name in sorted(tensors))
    return compute_fingerprint(f"{batch_size} {precision}", json.dumps(value), *arrays, *Limits.now().words)


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
        raise InputError(f"{part} was begun with another guard, batch size or oodshape; remove it to start again")
    end, keep, mark, written = file.tell(), 0, who, os.fstat(file.fileno()).st_mtime
    for block, seal in _blocks(file, part, batch_size):
        mark_now = compute_fingerprint(mark, b"".join(block))
        if seal != _sealed(mark_now):
            raise InputError(f"{part} is damaged after image {keep}: a checksum is wrong; remove it to start again")
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
            if os.path.isfile(path) and os.stat(path).st_ctime > written:
                raise InputError(f"{path} was changed after {part} was written; remove {part} to start again")
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
            raise InputError(f"{part} is damaged: a checksum is missing; remove it to start again")
        else:
            block.append(line)


class ScoresInUse(InputError):
    """Another process writes these scores."""


def _refuse(part: Path) -> None:
    raise ScoresInUse(f"another process writes {part}; wait for it, or choose another file")


def plan_shard(listing: ImageSource, shard: Shard, batch_size: int, guard: str) -> tuple[range, str]:
    """Plan one shard of the listed images: its rows, which are whole batches, and the note of its file."""
    if isinstance(listing, StandardInput):
        raise InputError("standard input cannot be read twice, so it has no shards; write the paths to a list")
    names, total = blake2b(digest_size=8), 0
    for path, _ in listing.pairs():
        names.update(path.encode(errors="surrogateescape") + b"\0")
        total += 1
    note = ShardNote(shard.number, shard.shards, names.hexdigest(), guard)
    return shard.rows(total, batch_size), json.dumps(note._asdict())
