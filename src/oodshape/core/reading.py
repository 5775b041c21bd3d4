"""reading: whatever goes wrong inside a file from outside ends in the one error that users see, with its name."""

from __future__ import annotations

import csv
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import Any, TextIO, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

from oodshape.core.errors import InputError
from oodshape.core.text import printable

# What damaged bytes lead to in the readers of Python, numpy, safetensors, pandas and torch. RecursionError is a
# RuntimeError, UnicodeDecodeError and JSONDecodeError are ValueErrors, KeyError and IndexError are LookupErrors.
DAMAGE = (
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError, EOFError, MemoryError, RuntimeError),
    *(SyntaxError, csv.Error, zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, SafetensorError),
)


@contextmanager
def reading(path: str | Path, way_out: str = "") -> Iterator[None]:
    """Any failure to read or to understand the file at `path` as an InputError of one line that names it.

    >>> with reading("notes.json", "give the results.json of a run"):
    ...     {}["rows"]
    Traceback (most recent call last):
    oodshape.core.errors.InputError: notes.json is damaged (KeyError: 'rows'); give the results.json of a run
    """
    end = f"; {way_out}" if way_out else ""
    try:
        yield
    except InputError as error:
        if str(path) in str(error):
            raise
        raise InputError(f"{path}: {one_line(error, 1000)}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read ({one_line(error.strerror or error)}){end}") from None
    except DAMAGE as error:
        raise InputError(f"{path} is damaged ({type(error).__name__}: {one_line(error)}){end}") from None


def read_names(path: Path) -> tuple[str, ...]:
    """The names of the classes in a text file, one a line, in the network's order."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the class names {path}: {error}") from None
    return tuple(line.strip() for line in lines if line.strip())


def npz_arrays(path: str | Path) -> dict[str, NDArray[Any]]:
    """All arrays of an .npz file by name, each held to the checksum that the archive has of it; no pickles.

    Not one by one: in a damaged directory an array may have another name, and seem not to be there.
    """
    with reading(path, "it must be an .npz file of numpy"), np.load(path, allow_pickle=False) as file:
        if any(b"PK\x01\x02" in entry.comment + entry.extra for entry in file.zip.infolist()):
            raise InputError("its directory is damaged: an entry has swallowed the next")
        return {name: file[name] for name in file.files}


def any_names(stream: TextIO) -> TextIO:
    """Let standard input or output pass names of files as they are: any bytes, with CR; escaped on a terminal."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="surrogateescape", newline="\n")
    return cast(TextIO, _Escaping(stream)) if stream.isatty() and stream is not sys.stdin else stream


class _Escaping:
    """A terminal that obeys nothing in what is written to it."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        return self._stream.write(printable(text.removesuffix("\n")) + "\n" * text.endswith("\n"))

    def writelines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        self._stream.flush()


def one_line(said: object, most: int = 200) -> str:
    """The words of a message in one line, cut where they do not end; what no terminal can show is escaped."""
    text = " ".join(str(said).split())
    return printable(text if len(text) <= most else f"{text[:most]} ...")
