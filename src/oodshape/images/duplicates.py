"""Copies: which images of one set are in another set too, or twice in the same set, under any name.

Files are compared by their real path and by their bytes; only files of equal size are read, and of those that differ
only their ends. Images in memory are compared by their pixels, also with files. A set that is no longer available is
compared by its sketch: the smallest hashes of its images' contents.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.machine import count_cores
from oodshape.images import identity
from oodshape.images.decode.prefetch import MOST
from oodshape.images.sources.archives import ArchivedImages
from oodshape.images.sources.image_files import ImageFiles
from oodshape.images.sources.image_set import ImageSet, IndexedImages, Subset, find_identities
from oodshape.images.sources.memory import pixel_key
from oodshape.images.sources.storage import is_remote, read_bytes

END = 4096  # bytes at a file's end that tell files of equal size apart
SKETCH = 4096  # hashes that are kept of a set


def find_copies(images: ImageSet, of: ImageSet) -> list[str]:
    """Find the images that also occur in another set; return their names in order."""
    files, others = _local_files(images), _local_files(of)
    if files is not None and others is not None:
        return _same_files(files, others)
    known = set(_in_threads(_pixel_key, of)) - {None}
    return [_name(images, row) for row, key in enumerate(_in_threads(_pixel_key, images)) if key in known]


def find_repeated(images: ImageSet) -> list[int]:
    """Find the images whose content equals that of an earlier image of the set."""
    keys: dict[int, Any] = dict(enumerate(find_identities(images).tolist()))
    files = _local_files(images)
    if files is not None:
        keys = dict.fromkeys(keys, ())
        for part in (_size, _end, _whole):
            keys = {row: (*key, part(files[row])) for row, key in keys.items()}
            counts = Counter(keys.values())
            keys = {row: key for row, key in keys.items() if counts[key] > 1 and key[-1] is not None}
    first: dict[Any, int] = {}
    return [row for row, key in keys.items() if first.setdefault(key, row) != row]


def make_sketch(images: ImageSet) -> identity.Keys:
    """At most `SKETCH` keys, ascending: the smallest hashes of the images' contents, the same in any order and split.

    The upper half of a key is a hash of a file's size: of local files only the chosen ones are read.
    """
    if len(images) == 0:
        return np.empty(0, np.uint64)
    halves = _upper_halves(images)
    rows = range(len(images)) if halves is None else np.flatnonzero(halves <= np.sort(halves)[:SKETCH][-1]).tolist()
    return join_sketches([_content_keys(images, rows)])


def join_sketches(sketches: list[identity.Keys]) -> identity.Keys:
    """The sketch of several sets together."""
    return np.unique(np.concatenate(sketches))[:SKETCH]


def find_copies_in_sketch(images: ImageSet, sketch: identity.Keys) -> list[str]:
    """The names of the images whose content is in the sketch of another set."""
    if len(sketch) == 0:
        return []
    halves = _upper_halves(images)
    rows = range(len(images)) if halves is None else np.flatnonzero(halves <= sketch[-1]).tolist()
    found = np.isin(_content_keys(images, rows), sketch)
    return [_name(images, row) for row, copy in zip(rows, found.tolist(), strict=True) if copy]


def _name(images: ImageSet, row: int) -> str:
    return images.called(row) if isinstance(images, IndexedImages) else f"image {row}"


def _local_files(images: ImageSet) -> list[str] | None:
    """Where the images lie, if all are files of this machine."""
    if isinstance(images, Subset):
        files = _local_files(images.base)
        return None if files is None else [files[row] for row in images.indices]
    files = images.files if isinstance(images, ImageFiles) else None
    return None if files is None or any(map(is_remote, files)) else files


def _upper_halves(images: ImageSet) -> identity.Keys | None:
    """[N]: the upper halves of the keys of local files, without reading them; the largest for a file that is gone."""
    files = _local_files(images)
    if files is None:
        return None
    sizes = [_size(file) for file in files]
    known = np.array([size is not None for size in sizes])
    halves = identity.draw_keys(np.array([size or 0 for size in sizes], np.uint64), 0, "sketch") & UPPER
    return np.where(known, halves, UPPER)


UPPER = np.uint64(0xFFFFFFFF00000000)


def _content_keys(images: ImageSet, rows: Any) -> identity.Keys:
    """[n]: the keys of some images, by their encoded bytes where they have them, else by their pixels."""
    return np.array(_in_threads(_content_key, images, rows), np.uint64)


def _content_key(images: ImageSet, row: int) -> int:
    if isinstance(images, Subset):
        return _content_key(images.base, int(images.indices[row]))
    try:
        if isinstance(images, (ImageFiles, ArchivedImages)):
            data = read_bytes(images.path(row)) if isinstance(images, ImageFiles) else images.encoded_bytes(row)
            upper = identity.draw_keys(np.array([len(data)], np.uint64), 0, "sketch")[0] & UPPER
            return int(upper | (identity.hash_each([data])[0] & ~UPPER))
        return pixel_key(images[row])
    except (InputError, OSError):  # an image that cannot be read is a copy of none
        return int(identity.hash_each([f"unreadable {row} {images.fingerprint}"])[0])


def _same_files(files: list[str], others: list[str]) -> list[str]:
    real, places = [os.path.realpath(file) for file in files], set(map(os.path.realpath, others))
    same = _same_bytes(set(real) - places, places)
    return [file for file in real if file in places or file in same]


def _same_bytes(files: set[str], others: set[str]) -> set[str]:
    """The files whose bytes another one has: by sizes, then ends, then the whole, of those left each time."""
    for key in (_size, _end, _whole):
        mine, theirs = ({file: key(file) for file in group} for group in (files, others))
        common = set(mine.values()) & (set(theirs.values()) - {None})
        files, others = ({file for file, found in each.items() if found in common} for each in (mine, theirs))
    return files


def _size(file: str) -> int | None:
    try:
        return os.stat(file).st_size or None  # empty files are no images
    except OSError:
        return None


def _end(file: str) -> bytes | None:
    return _digest(file, max((_size(file) or 0) - END, 0))


def _whole(file: str) -> bytes | None:
    return _digest(file, 0)


def _digest(file: str, first: int) -> bytes | None:
    try:
        with open(file, "rb") as opened:
            opened.seek(first)
            return blake2b(opened.read(), digest_size=16).digest()
    except OSError:
        return None


def _pixel_key(images: ImageSet, row: int) -> int | None:
    try:
        return pixel_key(images[row])
    except InputError:
        return None


def _in_threads(key: Callable[[ImageSet, int], Any], images: ImageSet, rows: Any = None) -> list[Any]:
    with ThreadPoolExecutor(min(MOST, count_cores())) as pool:
        return list(pool.map(lambda row: key(images, row), range(len(images)) if rows is None else rows))
