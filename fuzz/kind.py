"""Kind: one sort of file, how it is damaged, and what must come of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

Files = dict[str, bytes]  # by their place below the folder that is read


def equal(found: bytes, whole: bytes) -> bool:
    """Whether a damaged file leads to what the whole one leads to."""
    return found == whole


@dataclass(frozen=True)
class Kind:
    """Files that are read together; the fuzzer damages one of them, and reads.

    `read` gives whatever the files lead to, as bytes. It may end in an InputError. Where the files have a checksum,
    `same` holds what a damaged one leads to against what the whole one did; `forge` damages what the checksum is
    over, and makes it right again.
    """

    name: str
    seeds: tuple[Files, ...]
    read: Callable[[Path], bytes]
    same: Callable[[bytes, bytes], bool] | None = None
    forge: Callable[[Files, Random], Files] | None = None
    hurt: tuple[str, ...] = ()  # the files that are damaged; none: all
