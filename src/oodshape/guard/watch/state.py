"""How far the score files of a watch were read, with a digest of what was read, so that every row counts once."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated

from filelock import lock_descriptor

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Value
from oodshape.guard.scoring.score_table import ScoreRow, read_scores

Block = tuple[list[ScoreRow], "ReadPosition | None"]


@dataclass(frozen=True, eq=False, repr=False)
class ReadPosition(Value):
    """The number of rows that were read of a file, and the digest of these rows."""

    file: str
    rows: Annotated[int, AtLeast(0)] = 0
    digest: str = sha256().hexdigest()

    @classmethod
    def start_of(cls, scores: str) -> ReadPosition:
        """The position before the first row; a file has one name, however its path is written."""
        return cls(os.path.realpath(scores))


def read_blocks(scores: str, after: ReadPosition | None, *, size: int, follow: bool = False) -> Iterator[Block]:
    """Read the rows after a position in blocks of at most `size`, each with the position where it ends.

    Without `after` all rows are read, and there are no positions. With one a last line without an end is left for the
    next time: it may still be written.
    """
    past = 0 if after is None else after.rows
    if after is not None and follow and sum(1 for _ in read_scores(scores, complete=True)) < past:
        raise _changed(scores, after)  # following it would wait for rows that are no longer there
    block, count, digest = list[ScoreRow](), 0, sha256()

    def position() -> ReadPosition | None:
        return None if after is None else ReadPosition(after.file, count, digest.hexdigest())

    for row in read_scores(scores, follow=follow, complete=after is not None):
        count += 1
        digest.update(json.dumps(list(row.cells.values()), default=str).encode())
        if count > past:
            block.append(row)
        elif after is not None and count == past and digest.hexdigest() != after.digest:
            raise _changed(scores, after)
        if len(block) == size:
            yield block, position()
            block = []
    if after is not None and count < past:
        raise _changed(scores, after)
    if block:
        yield block, position()


def _changed(scores: str, after: ReadPosition) -> InputError:
    return InputError(
        f"{scores} was changed in the {after.rows:,} rows that were counted before; only add rows to a file that is "
        "watched: write new rows to another file, or start with another --state"
    )


@contextmanager
def locked_state(state: str) -> Iterator[None]:
    """Keep a state for this process alone: a second one would overwrite what the first has seen."""
    if not state:
        yield
        return
    with open(f"{state}.lock", "ab") as file:
        if not lock_descriptor(file.fileno(), blocking=False):
            raise InputError(f"another process uses {state}; stop it, or give another --state")
        yield  # the file stays: without it, a third process could lock a new one while the second holds the old one
