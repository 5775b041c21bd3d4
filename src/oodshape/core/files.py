"""Read files that may be damaged, write files atomically, and store safetensors files with a header and a checksum.

The checksum in the header covers the rest of the header and every tensor.
"""

from __future__ import annotations

import csv
import errno
import hashlib
import json
import os
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, TextIO, cast

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

import oodshape
from oodshape.core.errors import InputError
from oodshape.core.machine import lock_file
from oodshape.core.text import printable

FORMAT = 2
CHECKSUM = "checksum"
LONGEST = 1 << 16  # characters of a line in a list or a table
LONGEST_TEXT = 1 << 22  # characters of a benchmark or a list of class names
MOST_VALUES = 1000  # of the types in a detector; auto with eight components has some fifty
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
WAY_OUT = {
    "detector": "give the file that `oodshape fit` wrote (or Guard.save, Detector.save)",
    "watch": "give the file that `oodshape watch --state` wrote (or Watch.save)",
    "part": "give the files that `oodshape collect` wrote",
}  # what to do instead, by the expected kind of file
Tensors = dict[str, NDArray[Any]]
# What damaged bytes lead to in the readers of Python, numpy, safetensors, pandas and torch. RecursionError is a
# RuntimeError, UnicodeDecodeError and JSONDecodeError are ValueErrors, KeyError and IndexError are LookupErrors.
DAMAGE = (
    *(LookupError, ValueError, TypeError, AttributeError, ArithmeticError, EOFError, MemoryError, RuntimeError),
    *(SyntaxError, csv.Error, zipfile.BadZipFile, zlib.error, struct.error, tokenize.TokenError, SafetensorError),
)


@contextmanager
def reading(path: str | Path, way_out: str = "") -> Iterator[None]:
    """Turn any failure to read or parse the file at `path` into an InputError that names it.

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


def read_npz(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an .npz file by name, verify their checksums, and refuse pickles.

    Not one by one: in a damaged directory an array may have another name, and seem not to be there.
    """
    with reading(path, "it must be an .npz file of numpy"), np.load(path, allow_pickle=False) as file:
        if any(b"PK\x01\x02" in entry.comment + entry.extra for entry in file.zip.infolist()):
            raise InputError("its directory is damaged: an entry has swallowed the next")
        return {name: file[name] for name in file.files}


def any_names(stream: TextIO) -> TextIO:
    """Let standard input or output pass any bytes in file names, CR included; a terminal shows them escaped."""
    if isinstance(stream, TextIOWrapper):
        stream.reconfigure(errors="surrogateescape", newline="\n")
    return cast(TextIO, _Escaping(stream)) if stream.isatty() and stream is not sys.stdin else stream


def bounded_lines(file: TextIO, where: object) -> Iterator[str]:
    """Iterate over the lines of a file; a line that is too long is refused before it is read completely."""
    while line := file.readline(LONGEST + 1):
        if len(line) > LONGEST:
            raise InputError(f"{where} has a line of more than {LONGEST:,} characters; write a path or a row on each")
        yield line


def read_short_text(path: Path, encoding: str = "utf-8") -> str:
    """Read a text file; one that is too long is refused before it is read completely."""
    with path.open(encoding=encoding) as file:
        text = file.read(LONGEST_TEXT + 1)
    if len(text) > LONGEST_TEXT:
        raise InputError(f"{path} has more than {LONGEST_TEXT:,} characters; give another file")
    return text


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
    """Put a message on one line, shorten it, and escape control characters."""
    text = " ".join(str(said).split())
    return printable(text if len(text) <= most else f"{text[:most]} ...")


def check_writable(*files: Path | None) -> None:
    """Refuse a file that could not be written, before any work is done."""
    for file in files:
        if file is None:
            continue
        if file.exists() and not file.is_file():
            what = "a folder; name a file in it" if file.is_dir() else "no ordinary file; name another"
            raise InputError(f"cannot write {file}: it is {what}")
        if not file.parent.is_dir():
            raise InputError(f"cannot write {file}: the folder {file.parent} does not exist")
        try:
            with TemporaryFile(dir=file.parent):
                pass
        except OSError as error:
            raise InputError(f"cannot write {file}: {error.strerror}; choose another folder") from None


def compute_fingerprint(*parts: str | bytes | NDArray[Any]) -> str:
    """Return 16 hex digits of the SHA-256 over strings, bytes and arrays; the same on every machine.

    >>> compute_fingerprint("cats", np.zeros(2, np.uint8))
    '9450ad2d9c5671f0'
    """
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype.str}{part.shape}".encode())
            part = np.ascontiguousarray(part).tobytes()
        part = part.encode() if isinstance(part, str) else part
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.hexdigest()[:16]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path next to `path`; the file replaces `path` if the block ends without an error."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    with writing(path), temporary_file(path) as temporary:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """Turn the errors of a full or read-only disk into an InputError that names the file."""
    try:
        yield
    except (OSError, SafetensorError) as error:  # safetensors has its own error for both
        if isinstance(error, OSError) and error.errno not in NO_ROOM:
            raise
        why = error.strerror if isinstance(error, OSError) else one_line(error)
        raise InputError(f"cannot write {path}: {why}; check the space and the permissions there") from None


@contextmanager
def temporary_file(path: Path) -> Iterator[Path]:
    """Yield an empty, locked file next to `path`, and remove it at the end unless it was renamed.

    Its name is fixed: a killed run leaves at most one file, which the next run reuses. The lock ends with the process
    and makes a second run wait.
    """
    temporary = path.with_name(f".{path.name}.writing")
    descriptor = _open_locked(temporary)
    try:
        os.ftruncate(descriptor, 0)
        yield temporary
    finally:
        if _has_name(descriptor, temporary):  # otherwise it was renamed, and another run may use the name by now
            temporary.unlink()
        os.close(descriptor)


def _open_locked(temporary: Path) -> int:
    """Open and lock the file; try again if the previous holder of the lock has renamed or removed it."""
    while True:
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            lock_file(descriptor, lambda: None)
            if _has_name(descriptor, temporary):
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _has_name(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def save_file(path: str | Path, kind: str, header: dict[str, Any], tensors: Tensors) -> None:
    """Write a safetensors file of the given kind."""
    from safetensors.numpy import save as serialize

    arrays = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    content = {"kind": kind, "format": FORMAT, "oodshape": oodshape.__version__, **header}
    content[CHECKSUM] = checksum(content, arrays)
    with replacing(path) as temporary:
        # save_file of safetensors would use a random temporary name, which a killed process leaves behind
        temporary.write_bytes(serialize(arrays, {"oodshape": json.dumps(content)}))


def checksum(header: dict[str, Any], arrays: Tensors | None = None) -> str:
    """Return 16 hex digits over a JSON object, without its own checksum, and named arrays."""
    plain = {name: value for name, value in header.items() if name != CHECKSUM}
    parts = [part for name, array in sorted((arrays or {}).items()) for part in (name, array)]
    return compute_fingerprint(json.dumps(plain, sort_keys=True), *parts)


def verify_checksum(header: dict[str, Any], arrays: Tensors | None = None) -> None:
    """Raise an InputError if the checksum is missing or wrong."""
    if header.get(CHECKSUM) != checksum(header, arrays):
        state = "wrong" if CHECKSUM in header else "missing"
        raise InputError(f"the file is damaged: its checksum is {state}; restore it from a copy, or create it again")


def load_file(path: str | Path, kind: str) -> tuple[dict[str, Any], Tensors]:
    """Return the header and the tensors of a file of the given kind."""
    from safetensors import safe_open

    header, fix = read_header(path, kind), WAY_OUT[kind]
    with reading(path, fix):
        with safe_open(str(path), framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        verify_checksum(header, tensors)
        if kind == "detector" and max(str(text).count('"type"') for text in header.values()) > MOST_VALUES:
            raise InputError(f"{path} has more than {MOST_VALUES:,} parts, and each costs time for every image; {fix}")
    return header, tensors


def read_header(path: str | Path, kind: str) -> dict[str, Any]:
    """Return the header of a file of the given kind; only `load_file`, which reads all of it, verifies the checksum."""
    from safetensors import safe_open

    fix = WAY_OUT[kind]
    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("oodshape", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path} is not an oodshape file, or it is damaged ({one_line(error)}); {fix}") from None
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise InputError(f"{path} is not an oodshape file; {fix}")
    if header["kind"] != kind:
        raise InputError(f"{path} is an oodshape file, but holds {header['kind']}, not {kind}; {fix}")
    if header.get("format") != FORMAT:
        raise InputError(
            f"{path} has format {header.get('format')!r}, this version of oodshape reads {FORMAT}; "
            "upgrade oodshape, or create the file again"
        )
    return header
