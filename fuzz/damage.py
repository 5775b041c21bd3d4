"""Ways to damage a file: its bytes, its words, or the values in it."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

WORDS = (
    *(b"NaN", b"-Infinity", b"1e999", b"-1", b"0", b"null", b"true", b'"', b"\\", b"{", b"[", b"]", b",", b"\n", b"\r"),
    *(
        b"\x00",
        b"\xff\xfe",
        b"\xed\xb3\xbf",
        b"[" * 5000,
        b'{"a":' * 3000,
        b"9" * 5000,
        b"n01440764",
        b"\t",
        b" ",
        b"'",
    ),
)
NUMBERS = (0, 1, 0x7F, 0x80, 0xFF, 0x7FFF, 0xFFFF, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 0x7FFFFFFFFFFFFFFF)
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2, 10**30, -(10**30), 0.5, -0.5, 1e-9, 1e300, float("nan"), float("inf"), -1e999),
    *("", "a", "detector.shape.theta", "Detector", "Energy", "Fusion", [], {}, [[]], [1, 2], {"type": "Energy"}),
    *({"type": "Clip", "t": 1.0}, {"type": 5}, {"tensor": "nothing"}, "\udcff", "x" * 3000),
)
TYPES = ("<f4", "<f8", "<f2", "<i4", "<i8", "<u8", "|u1", "|b1")


def bytes_damaged(data: bytes, rng: Random) -> bytes:
    """One to three faults anywhere in the bytes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        _fault(changed, rng)
    return bytes(changed)


def _fault(data: bytearray, rng: Random) -> None:
    at = rng.randrange(len(data) + 1)
    if rng.random() < 0.3:  # headers are short and at the front
        at = rng.randrange(min(len(data), 600) + 1)
    size = rng.choice((1, 1, 2, 4, 8, 64, 512))
    kind = rng.randrange(9)
    if kind <= 2 and data:
        data[at % len(data)] ^= 1 << rng.randrange(8)
    elif kind == 3 and data:
        data[at % len(data)] = rng.randrange(256)
    elif kind == 4:
        del data[at : at + size]
    elif kind == 5:
        data[at:at] = rng.randbytes(size) if rng.random() < 0.5 else bytes(data[at : at + size])
    elif kind == 6:
        del data[at:]
    elif kind == 7:
        word = rng.choice(WORDS)
        data[at : at + (len(word) if rng.random() < 0.5 else 0)] = word
    else:
        width = rng.choice((1, 2, 4, 8))
        number = rng.choice(NUMBERS) & (256**width - 1)
        data[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))


def tree_damaged(tree: Any, rng: Random) -> Any:
    """A copy of what JSON holds with one place changed: another value, a key gone, doubled or renamed."""
    tree = json.loads(json.dumps(tree))
    places = list(_places(tree))
    if not places:
        return rng.choice(VALUES)
    owner, key = rng.choice(places)
    kind = rng.randrange(8)
    if kind == 0:
        del owner[key]
    elif kind == 1 and isinstance(owner, dict):
        owner[f"{key}x"] = owner.pop(key)
    elif kind == 2 and isinstance(owner, list):
        owner.insert(key, owner[key])
    elif kind == 3:
        other, place = rng.choice(places)
        owner[key] = json.loads(json.dumps(other[place]))
    elif kind == 4 and isinstance(owner[key], (int, float)) and not isinstance(owner[key], bool):
        owner[key] = rng.choice((-owner[key], owner[key] + 1, owner[key] - 1, owner[key] * 1e3, owner[key] * 1e-9))
    else:
        owner[key] = rng.choice(VALUES)
    return tree


def _places(tree: Any) -> Any:
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, item in list(items):
        yield tree, key
        yield from _places(item)


def array_damaged(array: NDArray[Any], rng: Random) -> NDArray[Any]:
    """The array with another type, shape, order or some values."""
    kind = rng.randrange(6)
    with np.errstate(all="ignore"):
        if kind == 0:
            return array.astype(rng.choice(TYPES))
        if kind == 1:
            return array.reshape(rng.choice(([-1], [1, -1], [-1, 1], [*array.shape, 1])))
        if kind == 2:
            return array[: rng.randrange(len(array) + 1)] if array.ndim else array
        if kind == 3:
            return np.array(array[::-1]) if array.ndim else array
        changed = np.array(array)
        for _ in range(rng.choice((1, changed.size))):
            value = rng.choice((np.nan, np.inf, -np.inf, 0.0, -1.0, 1e30, 1.0, -1e30))
            changed.flat[rng.randrange(max(changed.size, 1)) : changed.size] = np.float64(value).astype(changed.dtype)
        return changed
