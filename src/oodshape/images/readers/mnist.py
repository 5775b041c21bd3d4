"""MNIST, and any set in its IDX format: plain or gzipped."""

from __future__ import annotations

import gzip
import io
import math
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.reading import reading
from oodshape.images.image_set import ArraySet
from oodshape.images.limits import Limits

HOME = "http://yann.lecun.com/exdb/mnist/"


def mnist(root: str | Path, *, train: bool, name: str = "mnist") -> ArraySet:
    """MNIST: [N, 28, 28] images with the digits as labels.

    The files lie in `root`, `root/raw` or `root/MNIST/raw`, as `t10k-images-idx3-ubyte` or
    `t10k-images.idx3-ubyte`, with or without `.gz`.
    """
    part = "train" if train else "t10k"
    images = read_idx(_find(Path(root), part, "images", 3), 3)
    path = _find(Path(root), part, "labels", 1)
    labels = read_idx(path, 1)
    if len(labels) != len(images) or len(images) == 0:
        raise InputError(f"{path} holds {len(labels)} labels, its image file {len(images)} images")
    return ArraySet(name, images, labels.astype(np.int64))


def read_idx(path: Path, dims: int) -> NDArray[np.uint8]:
    """A uint8 array of `dims` dimensions from an IDX file: magic number, sizes (big-endian), values."""
    with reading(path, f"download it again from {HOME}"):
        data = path.read_bytes()
        if data[:2] == b"\x1f\x8b":
            data = _inflated(path, data, dims)
    magic, header = _magic(dims), 4 + 4 * dims
    if data[:4] != magic[: len(data)]:
        raise InputError(
            f"{path} is no IDX file of {dims}-dimensional bytes: it begins with {data[:4].hex()}, not {magic.hex()}"
        )
    shape = _sizes(data[:header])
    size = header + math.prod(shape)
    if len(data) < header or len(data) != size:
        wanted = f"{size} bytes for {shape}" if len(data) >= header else f"a header of {header} bytes"
        raise InputError(f"{path} is damaged: {len(data)} bytes, but needs {wanted}; download it again from {HOME}")
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _inflated(path: Path, data: bytes, dims: int) -> bytes:
    """The content of a gzipped file: as much as its header announces, where that is within the limits."""
    with gzip.GzipFile(fileobj=io.BytesIO(data)) as file:
        header = file.read(4 + 4 * dims)
        if header[:4] != _magic(dims):
            return header
        announced = math.prod(_sizes(header))
        Limits.now().check_inflated(path, announced, len(data))
        return header + file.read(announced + 1)  # one more tells a file that is too long


def _magic(dims: int) -> bytes:
    return bytes([0, 0, 8, dims])


def _sizes(header: bytes) -> list[int]:
    return [int.from_bytes(header[at : at + 4], "big") for at in range(4, len(header), 4)]


def _find(root: Path, part: str, what: str, dims: int) -> Path:
    """The first spelling of a file's name that is there."""
    names = [f"{part}-{what}{mark}idx{dims}-ubyte{suffix}" for mark in "-." for suffix in ("", ".gz")]
    for folder in (root, root / "raw", root / "MNIST" / "raw"):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise InputError(f"no MNIST below {root}: looked for {', '.join(names)}; download {names[1]} from {HOME}")
