"""A file in the making beside the one that it will be: by a fixed name, so that a killed run leaves at most one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from oodshape.core.machine import lock_file


@contextmanager
def scratch(path: Path) -> Iterator[Path]:
    """An empty file beside `path` that no other process writes; what is left of it in the end is removed.

    A random name would stay for ever after a kill. This one is taken over by the next run, and its lock, which ends
    with its process, keeps two runs apart: the second waits.
    """
    temporary = path.with_name(f".{path.name}.writing")
    descriptor = _locked(temporary)
    try:
        os.ftruncate(descriptor, 0)
        yield temporary
    finally:
        if _has_name(descriptor, temporary):  # else it has taken its place, and another run may use the name by now
            temporary.unlink()
        os.close(descriptor)


def _locked(temporary: Path) -> int:
    """The open file, locked, and still the one of this name: the run before has renamed or removed its own."""
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
