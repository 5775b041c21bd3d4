"""Identity: which image it is, in 64 bits; whatever is chosen by chance is chosen by a seeded hash of them.

An image's identity is its path relative to the given root, a hash of its pixels where it has no path, else its
number. Features differ in their last bits from processor to processor, and files arrive in any order; identities do
not, so a choice is the same on every machine, for every order of images and every way to split them into parts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError, check_fraction

Keys = NDArray[np.uint64]

_GOLDEN, _FIRST, _SECOND = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))  # splitmix64


def hash_each(contents: Iterable[str | bytes | NDArray[Any]]) -> Keys:
    """[N]: 64 bits of the BLAKE2 hash of each text, bytes or array.

    >>> hash_each(["cats/1.png", "dogs/1.png"])
    array([ 2348233073602234899, 10173923317889650623], dtype=uint64)
    """
    digests = b"".join(blake2b(_bytes(content), digest_size=8).digest() for content in contents)
    return np.frombuffer(digests, "<u8").astype(np.uint64)


def from_paths(paths: Iterable[str]) -> Keys:
    """[N]: the identities of files, by their paths from the given root; equal on every system."""
    return hash_each(os.path.normpath(path).replace(os.sep, "/") for path in paths)


def from_numbers(n: int, part: str = "") -> Keys:
    """[N]: the identities of images that have a number only; those of parts with other names are other images."""
    numbers = np.arange(n, dtype=np.uint64)
    return _mixed(numbers + hash_each([part])) if part else numbers


def check(values: Any, n: int) -> Keys:
    """Return [N] identities: texts are hashed, whole numbers kept."""
    array = np.asarray(values)
    if array.shape == (n,) and (array.dtype.kind == "u" or (array.dtype.kind == "i" and array.min(initial=0) >= 0)):
        return array.astype(np.uint64)
    if array.shape == (n,) and array.dtype.kind in "UO":
        return hash_each(map(str, array.tolist()))
    raise InputError(f"identities must be {n} texts or whole numbers from 0 on, got {array.dtype}{list(array.shape)}")


def draw_keys(identities: Keys, seed: int, purpose: str) -> Keys:
    """[N]: numbers drawn for each image, uniform in 0..2^64 - 1; other purposes draw independent ones.

    Were there no purpose, the images of a seeded subset would all have small keys, and all be held out.
    """
    return _mixed(_mixed(identities * _GOLDEN) + hash_each([f"{purpose} {seed}"]))


def draw_coins(identities: Keys, count: int, seed: int, purpose: str) -> NDArray[np.bool_]:
    """[N, count]: fair coins for each image.

    >>> draw_coins(from_numbers(2), 5, 0, "example")
    array([[False,  True, False, False, False],
           [False, False, False,  True,  True]])
    """
    drawn = draw_keys(identities, seed, f"coins {purpose}")
    return np.asarray(_mixed(drawn[:, None] + _GOLDEN * np.arange(count, dtype=np.uint64)) >> np.uint64(63) == 1)


def smallest(identities: Keys, count: int, seed: int, purpose: str) -> NDArray[np.int64]:
    """The places, ascending, of the `count` images with the smallest keys: a seeded subset.

    >>> smallest(from_numbers(100), 5, 0, "example")
    array([49, 53, 68, 72, 74])
    """
    return np.sort(np.argsort(draw_keys(identities, seed, purpose), kind="stable")[:count])


def pick_share(identities: Keys, share: float, seed: int = 0, *, purpose: str) -> NDArray[np.bool_]:
    """Return [N]: whether an image's key lies below the share; it depends on the image only, not on its part.

    >>> bool(pick_share(from_numbers(10_000), 0.25, purpose="example").sum() in range(2300, 2700))
    True
    """
    return np.asarray(draw_keys(identities, seed, purpose) < np.uint64(int(share * 2.0**64)))


def hold_out(identities: Keys, share: float, seed: int = 0, *, purpose: str, fewest: int = 1) -> NDArray[np.bool_]:
    """Return [N]: whether an image is held out: its key lies below the share.

    The choice depends on the image only, so parts can be split separately, and about a share of all is held out. Where
    that gives fewer than `fewest`, the images with the smallest keys are; never all. Images of equal identity stay
    together.
    """
    check_fraction("share", share)
    drawn, held = draw_keys(identities, seed, purpose), pick_share(identities, share, seed, purpose=purpose)
    n, count = len(drawn), int(held.sum())
    wanted = min(max(count, fewest), n - 1)
    if wanted == count:
        return held
    ordered = np.sort(drawn)
    return np.asarray(drawn <= ordered[wanted - 1] if wanted > count else drawn < ordered[wanted])


def _bytes(content: str | bytes | NDArray[Any]) -> bytes:
    if isinstance(content, np.ndarray):
        return f"{content.dtype.str}{content.shape}".encode() + content.tobytes()
    return content.encode(errors="surrogateescape") if isinstance(content, str) else content


def _mixed(x: Keys) -> Keys:
    """The finaliser of splitmix64."""
    x = (x ^ (x >> np.uint64(30))) * _FIRST
    x = (x ^ (x >> np.uint64(27))) * _SECOND
    return x ^ (x >> np.uint64(31))
