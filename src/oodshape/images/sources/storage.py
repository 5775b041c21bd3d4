"""Files wherever they lie: on this machine, or behind an address such as s3://bucket/folder (fsspec)."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

from oodshape.core.errors import InputError
from oodshape.core.files import one_line
from oodshape.core.machine import OFFLINE, is_offline
from oodshape.images.decode.formats import EXTENSIONS
from oodshape.images.decode.limits import Limits

SIGNS = r"[*?[]"  # what makes a glob of a path
# The stores that may be addressed. A list from elsewhere may hold any address, and some of fsspec's file systems read
# more than bytes: `reference://` renders templates of the file that it is chained to, which can run code.
STORES = ("file", "memory", "s3", "s3a", "gs", "gcs", "az", "abfs", "http", "https")


def is_remote(path: str) -> bool:
    """Whether a path is an address: s3://, gs://, file://, memory:// ..."""
    return re.match(r"[A-Za-z][A-Za-z0-9+.-]*://", path) is not None


def root_of(given: str) -> str:
    """The folder that the files of a path or a glob are called from: the last one before its first sign."""
    if is_remote(given):
        store, path = _store(given)
        given = store.unstrip_protocol(path)  # as the store spells it: memory://a is memory:///a
    return re.split(SIGNS, given, maxsplit=1)[0].rpartition("/")[0]


def match_remote(given: str) -> list[str]:
    """The files that an address or a glob of addresses stands for, sorted."""
    store, path = _store(given)
    plain = not re.search(SIGNS, path)
    found = _asked(given, lambda: filter(store.isfile, [path] if plain else store.glob(path)))
    if not found:
        raise InputError(f"there is no file {given}" if plain else f"no file matches {given}")
    return sorted(map(store.unstrip_protocol, found))


def list_remote_images(given: str) -> tuple[str, list[str]]:
    """(root, image files from there) of an address: a folder with all below it, in the order of `walked`, or a glob."""
    store, path = _store(given)
    if re.search(SIGNS, path):
        found, root = match_remote(given), root_of(given)
    else:
        found = [store.unstrip_protocol(each) for each in _asked(given, lambda: store.find(path))]
        single = len(found) == 1 and found[0].rstrip("/") == store.unstrip_protocol(path).rstrip("/")
        root = found[0].rpartition("/")[0] if single else store.unstrip_protocol(path).rstrip("/")
        found = [each for each in found if single or each.lower().endswith(EXTENSIONS)]
    names = [each[len(root) + 1 :] if each.startswith(f"{root}/") else each for each in found]
    names = [name for name in names if not any(word.startswith(".") for word in name.split("/"))]
    if not names:
        raise no_image(given)
    return root, sorted(names, key=_walked_place)


def no_image(root: object) -> InputError:
    """The error for a folder or an archive without images."""
    return InputError(f"no image lies in {root} or its subfolders; looked for {' '.join(EXTENSIONS)}")


def read_bytes(path: str, first: int = 0, last: int | None = None) -> bytes:
    """Read the bytes of a file, or those from `first` up to `last`; more than the limit of inflated are refused."""
    most = Limits.now().inflated
    if is_remote(path) and last is not None:
        store, inside = _store(path)
        return bytes(store.cat_file(inside, start=first, end=min(last, first + most)))
    with open_stored(path) as file:
        file.seek(first)
        data = bytes(file.read(most + 1 if last is None else min(last - first, most + 1)))
    if len(data) > most:
        raise InputError(f"{path} has more than {most:,} bytes, the limit of inflated; raise it for a file you trust")
    return data


def open_stored(path: str) -> Any:
    """Open a file for reading; a device or a pipe, which may never end, is refused."""
    if not is_remote(path):
        _check_regular(path)
        return open(path, "rb")
    store, inside = _store(path)
    return store.open(inside, "rb")


def as_decodable(path: str) -> str | BytesIO:
    """Return what a decoder can open: the path itself, or the bytes of a remote file."""
    if not is_remote(path):
        _check_regular(path)
        return path
    return BytesIO(read_bytes(path))


def _check_regular(path: str) -> None:
    """Refuse a device, a pipe or a socket: reading it may hang, never end, or have effects."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise InputError(f"{path} is a device, a pipe or a socket, not a file")


def stamp_file(path: str, *, contents: bool = False) -> str:
    """Return a stamp that changes with the file, or a hash of the `contents` of a local file; empty if missing."""
    try:
        if is_remote(path):
            store, inside = _store(path)
            return str(store.ukey(inside))
        status = os.stat(path)
        if contents:
            with open(path, "rb") as file:
                return hashlib.file_digest(file, "blake2b").hexdigest()
    except OSError:
        return ""
    # a file may be replaced with its size and time kept (cp -p, rsync -t, touch -r): only the time of change tells
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"


def _store(address: str) -> tuple[Any, str]:
    """The file system of an address, and the path in it."""
    protocol = address.partition("://")[0]
    if protocol.lower() not in STORES or "::" in address:
        raise InputError(f"{address} cannot be opened: addresses begin with {'://, '.join(STORES)}:// and have no '::'")
    if is_offline() and protocol.lower() not in ("file", "memory"):
        raise InputError(f"{address} is not read: --offline or {OFFLINE} forbids to use the network")
    try:
        from fsspec.core import url_to_fs

        store, path = url_to_fs(address)
    except ImportError as error:
        raise InputError(
            f"{protocol}:// needs another package ({one_line(error)}): pip install 'oodshape[remote]'"
        ) from None
    except ValueError as error:
        raise InputError(f"{address} cannot be opened: {one_line(error)}") from None
    if protocol.lower() == "file":
        _check_regular(str(path))
    return store, str(path)


def _asked(address: str, ask: Callable[[], Iterable[str]]) -> list[str]:
    """Run a query on a store; any error there becomes one line."""
    try:
        return list(ask())
    except Exception as error:  # each store has errors of its own: credentials, buckets, the network
        raise InputError(f"{address} cannot be listed ({type(error).__name__}: {one_line(error)})") from None


def _walked_place(name: str) -> list[tuple[bool, str]]:
    """Where a path stands in the order of `walked`: a folder's own images before those of its subfolders."""
    *folders, file = name.split("/")
    return [*((True, folder) for folder in folders), (False, file)]
