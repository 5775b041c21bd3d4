"""Where the files of data sets and networks come from: one row of `download_sources.csv` per file."""

from __future__ import annotations

import csv
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

DOWNLOADS = "downloads"  # below the data folder: files in transfer, and archives that a user got by hand
DRIVE = "https://drive.google.com/"


@dataclass(frozen=True)
class Download:
    """A published file: its addresses in order of preference, size, checksums, licence, and where it goes.

    `to` is a path below the folder of data or of weights. An archive becomes the folder `to`: the part of it below
    `inside`, and of that a seeded sample of `pick` files where it is set. `by_hand` says why a file is not downloaded.
    """

    folder: str  # data or weights
    name: str
    file: str
    to: str
    inside: str
    pick: int
    bytes: int  # 0: unknown
    md5: str
    sha256: str  # all of it, or the first 8 digits, as in the names of torch.hub
    addresses: tuple[str, ...]
    by_hand: str
    licence: str
    is_exact: bool  # whether `bytes` is exact; a size with a ~ in the table is not

    @classmethod
    def parse(cls, row: dict[str, Any]) -> Download:
        """The source that a row of the table describes."""
        addresses, size = tuple(row["addresses"].split()), row["bytes"]
        by_hand = row["by_hand"] or ("" if cls.direct(addresses) else "Google Drive limits downloads by programs")
        numbers = {"pick": int(row["pick"] or 0), "bytes": int(size.lstrip("~") or 0), "is_exact": size[:1].isdigit()}
        return cls(**row | numbers | {"addresses": addresses, "by_hand": by_hand})

    @staticmethod
    def direct(addresses: tuple[str, ...]) -> tuple[str, ...]:
        """The addresses that a program can download from."""
        return tuple(address for address in addresses if not address.startswith(DRIVE))

    @property
    def is_archive(self) -> bool:
        return bool(self.file) and Path(self.to).name != self.file

    @property
    def is_verified(self) -> bool:
        """Whether a checksum is known."""
        return bool(self.md5 or self.sha256)

    @property
    def size(self) -> str:
        """The size for people."""
        return format_size(self.bytes) if self.bytes else "size unknown"

    @property
    def put(self) -> str:
        """Where a user puts the file below the data or weights folder."""
        return f"{DOWNLOADS}/{self.file}" if self.is_archive else self.to

    def difference(self, path: Path) -> str:
        """How a file differs from the published one; empty where size and checksums agree."""
        if self.is_exact and path.stat().st_size != self.bytes:
            return f"it has {path.stat().st_size:,} bytes, the published file {self.bytes:,}"
        for kind, wanted in (("md5", self.md5), ("sha256", self.sha256)):
            found = hash_file(path, kind) if wanted else ""
            if not found.startswith(wanted):
                return f"its {kind} is {found}, that of the published file {wanted}"
        return ""


def hash_file(path: Path, kind: str = "sha256") -> str:
    """The hex digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()


def format_size(count: int) -> str:
    """A number of bytes for people.

    >>> format_size(64_275_384), format_size(4_736_829_440), format_size(4_542)
    ('64 MB', '4.7 GB', '5 kB')
    """
    if count >= 10**9:
        return f"{count / 10**9:.1f} GB"
    return f"{count / 10**6:.0f} MB" if count >= 10**6 else f"{-(-count // 1000)} kB"


@cache
def list_sources() -> dict[str, tuple[Download, ...]]:
    """Every source by name; a name with several files has several."""
    found: dict[str, tuple[Download, ...]] = {}
    text = (files("oodshape.images.datasets") / "download_sources.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        found[row["name"]] = (*found.get(row["name"], ()), Download.parse(row))
    return found


def describe_sources(sources: Iterable[Download]) -> str:
    """One line that says where some files come from, and why one is not downloaded."""
    parts = []
    for source in sources:
        reason = f" ({source.by_hand})" if source.by_hand else ""
        name = "" if source.addresses[0].endswith(f"/{source.file}") else f"{source.file} from "
        parts.append(f"{name if source.file else ''}{' or '.join(source.addresses)}{reason}")
    return "; ".join(parts)
