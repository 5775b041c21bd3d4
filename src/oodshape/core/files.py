"""Safetensors files with a header of our own and a checksum over all of it, written whole or not at all.

Format 1 (0.1.0) has no checksum: it is read, and `is_verified` says no. Format 2 has one in its header, over the rest
of the header and every tensor.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from safetensors import SafetensorError

import oodshape
from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.core.reading import one_line, reading
from oodshape.core.scratch import scratch

VERSION = 2
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO)
WAY_OUT = {
    "detector": "give the file that `oodshape fit` wrote (or Guard.save, Detector.save)",
    "watch": "give the file that `oodshape watch --state` wrote (or Watch.save)",
    "statistics": "give the file that FeatureStats.save wrote",
    "moments": "give the file that Moments.save wrote",
    "part": "give the files that `oodshape collect` wrote",
}  # by the kind of file
Tensors = dict[str, NDArray[Any]]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    with writing(path), scratch(path) as temporary:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)


@contextmanager
def writing(path: str | Path) -> Iterator[None]:
    """A disk that is full or may not be written to, as one line that names the file."""
    try:
        yield
    except (OSError, SafetensorError) as error:  # safetensors has an error of its own for both
        if isinstance(error, OSError) and error.errno not in NO_ROOM:
            raise
        why = error.strerror if isinstance(error, OSError) else one_line(error)
        raise InputError(f"cannot write {path}: {why}; check the space and the permissions there") from None


def save(path: str | Path, kind: str, header: dict[str, Any], tensors: Tensors) -> None:
    """Write one safetensors file of the given kind."""
    from safetensors.numpy import save as packed

    arrays = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    said = {"kind": kind, "format": VERSION, "oodshape": oodshape.__version__, **header}
    with replacing(path) as temporary:
        # its own way to write a file makes another beside it, by a name that a kill would leave there
        temporary.write_bytes(packed(arrays, {"oodshape": json.dumps(said | {CHECKSUM: checksum(said, arrays)})}))


CHECKSUM = "checksum"


def checksum(said: Any, arrays: Tensors | None = None) -> str:
    """16 hex digits over what JSON can hold and some arrays by name; a checksum in it does not count."""
    plain = {name: value for name, value in said.items() if name != CHECKSUM}
    parts = [part for name, array in sorted((arrays or {}).items()) for part in (name, array)]
    return fingerprint_of(json.dumps(plain, sort_keys=True), *parts)


def check_sum(said: dict[str, Any], first: int, arrays: Tensors | None = None) -> None:
    """Refuse a checksum that is wrong, or missing in a format from `first` on, since which all have one."""
    if CHECKSUM not in said:
        if said["format"] >= first:
            raise InputError("the file is damaged: its checksum is missing; restore it from a copy, or make it anew")
    elif said[CHECKSUM] != checksum(said, arrays):
        raise InputError("the file is damaged: its checksum is wrong; restore it from a copy, or make it anew")


def header(path: str | Path, kind: str) -> dict[str, Any]:
    """The header of a file of the given kind alone; its checksum is looked at by `load`, which reads all of it."""
    way_out = WAY_OUT.get(kind, f"give a file that holds {kind}")
    header = _header(path, way_out)
    if header["kind"] != kind:
        raise InputError(f"{path} is a file of oodshape, but holds {header['kind']}, not {kind}; {way_out}")
    if header["format"] > VERSION:
        raise InputError(f"{path} has format {header['format']}, this oodshape reads up to {VERSION}; upgrade oodshape")
    return header


def load(path: str | Path, kind: str) -> tuple[dict[str, Any], Tensors]:
    """The header and the tensors of a file of the given kind."""
    from safetensors import safe_open

    way_out = WAY_OUT.get(kind, f"give a file that holds {kind}")
    said = header(path, kind)
    with reading(path, way_out):
        with safe_open(str(path), framework="numpy") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        check_sum(said, 2, tensors)
    return said, tensors


def is_verified(path: str | Path) -> bool:
    """Whether a file of ours has a checksum, which loading it then holds it to; those of 0.1.0 have none."""
    return CHECKSUM in _header(path, "give a file that oodshape wrote")


def _header(path: str | Path, way_out: str) -> dict[str, Any]:
    """Our part of a file's header, with a kind and a format."""
    from safetensors import safe_open

    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("oodshape", "{}"))
    except (SafetensorError, OSError, ValueError, RecursionError, MemoryError) as error:
        raise InputError(f"{path} is no file of oodshape, or a damaged one ({one_line(error)}); {way_out}") from None
    if not isinstance(header, dict) or not isinstance(header.get("kind"), str):
        raise InputError(f"{path} is no file of oodshape; {way_out}")
    if type(header.get("format")) is not int or header["format"] < 1:
        raise InputError(f"{path} is damaged (format {header.get('format')!r}); {way_out}")
    return header
