"""Data sets in the files they are published as, small and made up."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
from scipy.io import savemat

RNG = np.random.default_rng(0)


def pixels(n: int) -> np.ndarray:
    return RNG.integers(0, 256, (n, 32, 32, 3), dtype=np.uint8)


def channel_major(images: np.ndarray) -> np.ndarray:
    return images.transpose(0, 3, 1, 2).reshape(len(images), 3072)


def binary(images: np.ndarray, *labels: list[int]) -> bytes:
    heads = np.array(labels, np.uint8).T
    return np.concatenate([heads, channel_major(images)], axis=1).tobytes()


def python2(data: np.ndarray, **fields: list[int]) -> bytes:
    """A batch as Python 2 and numpy wrote it: protocol 2, byte strings, numpy.core.multiarray."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"M" + value.to_bytes(2, "little")

    raw = data.tobytes()
    dtype = b"cnumpy\ndtype\n(" + text(b"u1") + b"K\x00K\x01tR(K\x03" + text(b"|") + b"NNN"
    dtype += b"J\xff\xff\xff\xff" * 2 + b"K\x00tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(K\x00t" + text(b"b") + b"tR"
    array += b"(K\x01(" + number(len(data)) + number(3072) + b"t" + dtype + b"\x89"
    array += b"T" + len(raw).to_bytes(4, "little") + raw + b"tb"
    items = text(b"data") + array
    for name, labels in fields.items():
        items += text(name.encode()) + b"](" + b"".join(map(number, labels)) + b"e"
    return b"\x80\x02}(" + items + text(b"batch_label") + text(b"training batch 1 of 5") + b"u."


def write(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def svhn_file(path: Path, images: np.ndarray, labels: list[int], *, compressed: bool = True) -> bytes:
    savemat(
        path, {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None]}, do_compression=compressed
    )
    return path.read_bytes()


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def archive(files: dict[str, bytes], mode: str = "w", links: dict[str, str] | None = None) -> bytes:
    """A tar file, or with the mode `zip` a zip file."""
    content = io.BytesIO()
    if mode == "zip":
        with zipfile.ZipFile(content, "w") as packed:
            for name, data in files.items():
                packed.writestr(name, data)
        return content.getvalue()
    with tarfile.open(fileobj=content, mode=mode) as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for name, target in (links or {}).items():
            member = tarfile.TarInfo(name)
            member.type, member.linkname = tarfile.SYMTYPE, target
            tar.addfile(member)
    return content.getvalue()
