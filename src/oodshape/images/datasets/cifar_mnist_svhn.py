"""CIFAR-10 and CIFAR-100, MNIST and SVHN from the files that they are published as.

Damaged and forged files end in one clear error; the pickles of CIFAR's python archive run nothing.
"""

from __future__ import annotations

import gzip
import math
import pickle
import struct
from io import BytesIO
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import reading
from oodshape.images.datasets.matlab import read_arrays
from oodshape.images.decode.limits import Limits
from oodshape.images.sources.image_set import ArraySet

Records = tuple[NDArray[np.uint8], NDArray[np.int64]]  # [N, 3072] pixels, channel-major, and [N] labels

AGAIN = "delete it and download it again: oodshape data get {}"
PIXELS = 3 * 32 * 32
LAYOUTS = {10: ("cifar-10-batches-bin", "cifar-10-batches-py"), 100: ("cifar-100-binary", "cifar-100-python")}


def read_cifar(root: str | Path, kind: Literal[10, 100] = 10, *, train: bool, name: str | None = None) -> ArraySet:
    """CIFAR-10 or CIFAR-100: [N, 32, 32, 3] images with their (fine) labels.

    `root` holds an unpacked archive's folder, or is that folder. Every batch that is there is read, in
    order, with as many records as it has.
    """
    root, (binary, python) = Path(root), LAYOUTS[kind]
    batches = _batches(kind, train)
    for folder in (root / binary, root / python, root):
        for suffix in (".bin", ""):
            files = [file for batch in batches if (file := folder / (batch + suffix)).is_file()]
            if files:
                pixels, labels = map(np.concatenate, zip(*(_read_batch(file, kind) for file in files), strict=True))
                images = np.ascontiguousarray(pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))
                return ArraySet(name or f"cifar{kind}", images, labels)
    raise InputError(
        f"no CIFAR-{kind} below {root}: looked for {binary}/{batches[0]}.bin and {python}/{batches[0]}; "
        f"download it: oodshape data get cifar-{kind}"
    )


def _batches(kind: int, train: bool) -> list[str]:
    """The batches of one part, without the suffix of the binary layout."""
    if kind == 100:
        return ["train" if train else "test"]
    return [f"data_batch_{number}" for number in range(1, 6)] if train else ["test_batch"]


def _read_batch(path: Path, kind: int) -> Records:
    """The records of one file, all labels in range."""
    with reading(path, AGAIN.format(f"cifar-{kind}")):
        pixels, labels = (_from_binary if path.suffix else _from_pickle)(path.read_bytes(), kind)
        if pixels.shape != (len(labels), PIXELS) or len(labels) == 0:
            raise InputError(f"{len(labels)} labels need data [{len(labels)}, {PIXELS}], got {list(pixels.shape)}")
        if labels.min() < 0 or labels.max() >= kind:
            wrong = int(labels[(labels < 0) | (labels >= kind)][0])
            raise InputError(f"it is damaged or no CIFAR-{kind} file: label {wrong} lies outside 0..{kind - 1}")
        return pixels, labels


def _from_binary(content: bytes, kind: int) -> Records:
    """The records of a .bin file: the label (CIFAR-100: coarse, then fine), then the pixels."""
    heads = 1 if kind == 10 else 2
    size = heads + PIXELS
    if not content or len(content) % size:
        raise ValueError(f"truncated: {len(content)} bytes, no whole number of records of {size} bytes")
    records = np.frombuffer(content, np.uint8).reshape(-1, size)
    return records[:, heads:], records[:, heads - 1].astype(np.int64)


def _from_pickle(content: bytes, kind: int) -> Records:
    """The records of a pickled batch: a dict with `data` and `labels` (CIFAR-100: `fine_labels`)."""
    wanted = "labels" if kind == 10 else "fine_labels"
    try:
        batch = _ArraysOnly(BytesIO(content), encoding="bytes").load()
        fields = {key.decode() if isinstance(key, bytes) else key: value for key, value in batch.items()}
        return fields["data"].values, np.fromiter(fields[wanted], np.int64)  # a list in lists may stand for any number
    except InputError:
        raise
    except Exception as error:  # a damaged pickle fails in whatever way its bytes lead to
        raise InputError(
            f"its {len(content)} bytes are damaged or no CIFAR-{kind} batch: no dict with `data` and "
            f"`{wanted}` can be read ({type(error).__name__}); {AGAIN.format(f'cifar-{kind}')}"
        ) from None


class _Array:
    """Stands for numpy.ndarray in a pickle: takes its state and keeps plain bytes as uint8."""

    values: NDArray[np.uint8]

    def __setstate__(self, state: tuple[int, tuple[int, ...], Any, bool, bytes]) -> None:
        _, shape, dtype, fortran, raw = state
        if not isinstance(dtype, _Dtype) or dtype.code not in (b"u1", "u1"):
            raise InputError("the array in it does not hold uint8")
        self.values = np.frombuffer(raw, np.uint8).reshape(shape, order="F" if fortran else "C")


class _Dtype:
    """Stands for numpy.dtype in a pickle: keeps the type's code."""

    def __init__(self, code: bytes | str, *_: object) -> None:
        self.code = code

    def __setstate__(self, state: object) -> None:
        """Byte order and alignment: without meaning for uint8."""


def _reconstruct(*_: object) -> _Array:
    """Stands for numpy's function that makes an empty array."""
    return _Array()


def _encode(text: str, codec: str) -> bytes:
    """Stands for _codecs.encode, by which Python 3 writes bytes into old pickles."""
    if codec not in ("latin1", b"latin1"):
        raise InputError(f"it asks for the codec {codec!r}")
    return text.encode("latin1")


class _ArraysOnly(pickle._Unpickler):  # the one in Python: in C, a forged memo index can ask for all memory
    """An unpickler that knows dicts, lists, numbers, strings and uint8 arrays, and imports nothing."""

    KNOWN: dict[tuple[str, str], Any] = {  # noqa: RUF012
        ("numpy.core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy._core.multiarray", "_reconstruct"): _reconstruct,
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Dtype,
        ("_codecs", "encode"): _encode,
    }
    # byte arrays, which no CIFAR batch has: their size is taken before their bytes are read
    dispatch = {key: load for key, load in pickle._Unpickler.dispatch.items() if key != pickle.BYTEARRAY8[0]}  # noqa: RUF012

    def find_class(self, module: str, name: str) -> Any:
        """The stand-in for a name that arrays need; every other name is refused."""
        try:
            return self.KNOWN[module, name]
        except KeyError:
            raise InputError(
                f"refused: this pickle asks for {module}.{name}, which no CIFAR batch needs: it is damaged or "
                "forged. Nothing of it was run; get the original: oodshape data get cifar-10 cifar-100"
            ) from None


def read_mnist(root: str | Path, *, name: str = "mnist") -> ArraySet:
    """MNIST's test images: [N, 28, 28] with the digits as labels.

    The files lie in `root`, `root/raw` or `root/MNIST/raw`, as `t10k-images-idx3-ubyte` or
    `t10k-images.idx3-ubyte`, with or without `.gz`.
    """
    images = read_idx(_find_idx(Path(root), "images", 3), 3)
    path = _find_idx(Path(root), "labels", 1)
    labels = read_idx(path, 1)
    if len(labels) != len(images) or len(images) == 0:
        raise InputError(f"{path} holds {len(labels)} labels, its image file {len(images)} images")
    return ArraySet(name, images, labels.astype(np.int64))


def read_idx(path: Path, dims: int) -> NDArray[np.uint8]:
    """A uint8 array of `dims` dimensions from an IDX file, gzipped or not: magic number, sizes (big-endian), values."""
    magic = bytes([0, 0, 8, dims])
    with reading(path, AGAIN.format("mnist")), path.open("rb") as file:
        is_packed = file.read(2) == b"\x1f\x8b"
        file.seek(0)
        stream = gzip.GzipFile(fileobj=file) if is_packed else file
        header = stream.read(4 + 4 * dims)
        if header[:4] != magic:
            begin = header[:4].hex()
            raise InputError(f"{path} is no IDX file of {dims} dimensions: it begins {begin}, not {magic.hex()}")
        shape = struct.unpack(f">{dims}I", header[4:])
        size = math.prod(shape)
        Limits.now().check_inflated(path, size, path.stat().st_size)
        values = stream.read(size + 1)  # one more tells a file that is too long
        if len(values) != size:
            raise ValueError(f"{len(values)} bytes or more of values, {list(shape)} needs {size}")
        return np.frombuffer(values, np.uint8).reshape(shape)


def _find_idx(root: Path, what: str, dims: int) -> Path:
    """The first spelling of a file's name that is there."""
    names = [f"t10k-{what}{mark}idx{dims}-ubyte{suffix}" for mark in "-." for suffix in ("", ".gz")]
    for folder in (root, root / "raw", root / "MNIST" / "raw"):
        for name in names:
            if (folder / name).is_file():
                return folder / name
    raise InputError(f"no MNIST below {root}: looked for {', '.join(names)}; run oodshape data get mnist")


def read_svhn(root: str | Path, *, name: str = "svhn") -> ArraySet:
    """SVHN's cropped test images (format 2): [N, 32, 32, 3] with the digits as labels (the file's label 10 means 0)."""
    path = Path(root) / "test_32x32.mat"
    if not path.is_file():
        raise InputError(f"no SVHN at {path}; download it: oodshape data get svhn")
    with reading(path, AGAIN.format("svhn")):
        content = read_arrays(path, ["X", "y"])
        images, labels = content["X"], content["y"].ravel()
        if images.dtype != np.uint8 or images.ndim != 4 or images.shape[:3] != (32, 32, 3):
            raise InputError(f"{path}: X must be uint8 [32, 32, 3, N], got {images.dtype}{list(images.shape)}")
        if len(labels) != images.shape[3] or len(labels) == 0:
            raise InputError(f"{path}: X holds {images.shape[3]} images, y {len(labels)} labels")
        if not np.isin(labels, np.arange(11)).all():
            raise InputError(f"{path}: y must hold the labels 1..10, got {labels.min()}..{labels.max()}")
        return ArraySet(name, np.ascontiguousarray(images.transpose(3, 0, 1, 2)), labels.astype(np.int64) % 10)
