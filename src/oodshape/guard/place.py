"""Place: how far a scores file was read, and a digest of what was read, so that no row counts twice or never."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice

from oodshape.core.errors import InputError
from oodshape.core.values import Value
from oodshape.guard.p_value_stream import Judged, judged, lines_of

Block = tuple[list[Judged], "Place | None"]  # p-values with their classes, and the place after them


@dataclass(frozen=True, eq=False, repr=False)
class Place(Value):
    """So many bytes of a file were read, in whole lines, and these had this digest."""

    file: str
    size: int = 0
    digest: str = sha256().hexdigest()

    def __post_init__(self) -> None:
        """Refuse what no file could have."""
        named = isinstance(self.file, str) and isinstance(self.digest, str) and len(self.digest) == 64
        if not named or not isinstance(self.size, int) or self.size < 0:
            raise InputError(f"{self.file!r} cannot have been read up to {self.size!r} ({self.digest!r})")


def name_of(scores: str) -> str:
    """The file's name, one for all ways to write it."""
    return os.path.realpath(scores)


def blocks(scores: str, after: Place | None, *, size: int, follow: bool = False) -> Iterator[Block]:
    """The p-values after a place in runs of at most `size`, each with the place where it ends.

    Without `after` everything is read, and there is no place. With one only whole lines are: a line without an end
    may still be growing, and is read when it has one.
    """
    where = "standard input" if scores == "-" else scores
    lines = lines_of(scores, follow=follow)
    if after is not None and follow and os.path.isfile(scores) and os.path.getsize(scores) < after.size:
        raise _changed(where, after)  # it would wait for rows that are there no more
    marker = None if after is None else _Marker(after, where)
    values = judged(lines if marker is None else marker.marked(lines), where)
    first = True
    while found := list(islice(_new(values, marker), size)):
        first = False
        yield found, None if marker is None else marker.place()
    if first and marker is not None:
        marker.check()


def _new(values: Iterator[Judged], marker: _Marker | None) -> Iterator[Judged]:
    """Those that the place leaves to be read."""
    return values if marker is None else (value for value in values if marker.is_new)


class _Marker:
    """Counts and digests the lines that go by, and tells where those begin that were not read before."""

    def __init__(self, after: Place, where: str) -> None:
        self.after, self.where = after, where
        self.size, self.digest, self.is_new = 0, sha256(), after.size == 0

    def marked(self, lines: Iterator[str]) -> Iterator[str]:
        """The same lines; an error where those before the place are not what they were."""
        for line in lines:
            if not line.endswith("\n"):
                return
            if self.size == self.after.size:
                self.check()
                self.is_new = True
            data = line.encode("utf-8", "surrogateescape")
            self.size += len(data)
            self.digest.update(data)
            yield line

    def check(self) -> None:
        """Refuse a file that is not the one that was read, or is shorter."""
        if self.is_new:
            return
        if (self.size, self.digest.hexdigest()) != (self.after.size, self.after.digest):
            raise _changed(self.where, self.after)

    def place(self) -> Place:
        """Where the last line ended."""
        return Place(self.after.file, self.size, self.digest.hexdigest())


def _changed(where: str, after: Place) -> InputError:
    return InputError(
        f"{where} was changed in the {after.size:,} bytes that were counted before; rows are only added to a file that "
        "is watched: give new rows a file of their own, or begin with another --state"
    )
