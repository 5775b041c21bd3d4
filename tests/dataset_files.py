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
