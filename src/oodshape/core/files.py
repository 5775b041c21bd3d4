"""Safetensors files with a header of our own, written whole or not at all."""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import oodshape
from oodshape.core.errors import InputError

VERSION = 1
WAY_OUT = {
    "detector": "give the file that `oodshape fit` wrote (or Guard.save, Detector.save)",
    "watch": "give the file that `oodshape watch --state` wrote (or Watch.save)",
    "statistics": "give the file that FeatureStats.save wrote",
    "moments": "give the file that Moments.save wrote",
}  # by the kind of file
Tensors = dict[str, NDArray[Any]]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """A temporary path beside `path` that takes its place when the block ends without an error."""
    path = Path(path)
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        umask = os.umask(0)
        os.umask(umask)
        temporary.chmod(0o666 & ~umask)
        temporary.replace(path)
    finally:
        temporary.unlink(missing_ok=True)


def save(path: str | Path, kind: str, header: dict[str, Any], tensors: Tensors) -> None:
    """Write one safetensors file of the given kind."""
    from safetensors.numpy import save_file

    said = {"kind": kind, "format": VERSION, "oodshape": oodshape.__version__, **header}
    with replacing(path) as temporary:
        save_file(
            {k: np.ascontiguousarray(v) for k, v in tensors.items()},
            temporary,
            {"oodshape": json.dumps(said)},
        )


def load(path: str | Path, kind: str) -> tuple[dict[str, Any], Tensors]:
    """The header and the tensors of a file of the given kind."""
    from safetensors import SafetensorError, safe_open

    if not Path(path).is_file():
        raise InputError(f"there is no file {path}")
    way_out = WAY_OUT.get(kind, f"give a file that holds {kind}")
    try:
        with safe_open(str(path), framework="numpy") as file:
            header = json.loads((file.metadata() or {}).get("oodshape", "{}"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except (SafetensorError, OSError, json.JSONDecodeError) as error:
        raise InputError(f"{path} is no file of oodshape, or a damaged one ({error}); {way_out}") from None
    if "kind" not in header:
        raise InputError(f"{path} is no file of oodshape; {way_out}")
    if header["kind"] != kind:
        raise InputError(f"{path} is a file of oodshape, but holds {header['kind']}, not {kind}; {way_out}")
    if header["format"] > VERSION:
        raise InputError(f"{path} has format {header['format']}, this oodshape reads up to {VERSION}; upgrade oodshape")
    return header, tensors
