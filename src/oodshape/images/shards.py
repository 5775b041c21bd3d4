"""Shards: runs of whole batches of a listing, so that many processes do what one would, batch for batch."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from oodshape.core.errors import InputError


class Shard(NamedTuple):
    """The `number`-th of so many shards; numbers begin at 1.

    >>> [Shard(number, 3).rows(1000, 64) for number in (1, 2, 3)]
    [range(0, 320), range(320, 640), range(640, 1000)]
    """

    number: int = 1
    shards: int = 1

    @classmethod
    def of(cls, text: str) -> Shard:
        """The shard that "3/16" names.

        >>> Shard.of("3/16")
        Shard(number=3, shards=16)
        """
        found = re.fullmatch(r"\s*(\d+)\s*/\s*(\d+)\s*", text)
        number, shards = (int(found[1]), int(found[2])) if found else (0, 0)
        if not 1 <= number <= shards:
            raise InputError(f"a shard is I/N with I from 1 to N, such as 3/16, got {text!r}")
        return cls(number, shards)

    def rows(self, total: int, batch_size: int) -> range:
        """Which images of so many are in it; none where there are fewer batches than shards."""
        batches = -(-total // batch_size)
        first, last = (place * batches // self.shards for place in (self.number - 1, self.number))
        return range(min(first * batch_size, total), min(last * batch_size, total))

    def __str__(self) -> str:
        """As users write it."""
        return f"{self.number}/{self.shards}"


def order_shards(files: Mapping[Path, Shard], advice: str) -> list[Path]:
    """Return the files of all shards in their order; files that overlap or are missing are an error."""
    first, found = next(iter(files)), dict[int, Path]()
    for path, (number, shards) in files.items():
        if shards != files[first].shards:
            raise InputError(
                f"{path} is one of {shards} shards, {first} one of {files[first].shards}: they overlap; make all with "
                "one number of shards"
            )
        if number in found:
            raise InputError(f"{path} and {found[number]} are both shard {number} of {shards}")
        found[number] = path
    shards = files[first].shards
    missing = shards - len(found)  # a file may claim more shards than can be listed
    if missing:
        named = islice((str(number) for number in range(1, shards + 1) if number not in found), 10)
        shown = ", ".join(named) + (f" and {missing - 10:,} more" if missing > 10 else "")
        raise InputError(f"shard {shown} of {shards} is missing beside {min(found.values())}: {advice}")
    return [found[number] for number in sorted(found)]
