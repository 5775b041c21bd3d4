"""Copies: which images of one set are in another too, under whatever name.

Files are compared by where they really lie and by their bytes; only files of equal size are read, and of those
that differ no more than their ends. Images in memory are compared by their pixels, with files too.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from hashlib import blake2b

from oodshape.core.errors import InputError
from oodshape.core.machine import cores
from oodshape.images.decode.prefetch import MOST
from oodshape.images.sources.folders import ImageFiles
from oodshape.images.sources.image_set import ImageSet, IndexedImages
from oodshape.images.sources.memory import pixel_key
from oodshape.images.sources.storage import is_remote

END = 4096  # bytes at a file's end that tell files of equal size apart


def copies(images: ImageSet, of: ImageSet) -> list[str]:
    """The names of the images that are among those of another set, in their order."""
    if isinstance(images, ImageFiles) and isinstance(of, ImageFiles):
        files, others = images.files, of.files
        if not any(map(is_remote, files + others)):
            return _same_files(files, others)
    known = set(_pixel_keys(of)) - {None}
    called = images.called if isinstance(images, IndexedImages) else "image {}".format
    return [called(row) for row, key in enumerate(_pixel_keys(images)) if key in known]


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


def _pixel_keys(images: ImageSet) -> list[int | None]:
    """The hash of every image's pixels; None where it cannot be read."""

    def key(row: int) -> int | None:
        try:
            return pixel_key(images[row])
        except InputError:
            return None

    with ThreadPoolExecutor(min(MOST, cores())) as pool:
        return list(pool.map(key, range(len(images))))
