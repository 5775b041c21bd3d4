"""The reader of MATLAB files: what scipy reads from whole files, and one error from damaged ones."""

from __future__ import annotations

import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from oodshape import InputError
from oodshape.images.datasets.cifar_mnist_svhn import svhn
from oodshape.images.datasets.matlab import Damaged, arrays, table
from oodshape.images.decode.limits import Limits

WNIDS = ["n02119789", "n02100735", "n01440764"]


def saved(path: Path, content: dict[str, object], *, compressed: bool) -> bytes:
    savemat(path, content, do_compression=compressed)
    return path.read_bytes()


def devkit(path: Path, *, compressed: bool) -> bytes:
    kinds = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("num_children", "O")]
    rows = [(3, WNIDS[2], "tench", 0), (1, WNIDS[0], "kit fox", 0), (4, "n00001740", "", 3), (2, WNIDS[1], "x", 0)]
    return saved(path, {"synsets": np.array(rows, kinds)[:, None]}, compressed=compressed)


def element(order: str, kind: int, data: bytes) -> bytes:
    return struct.pack(order + "II", kind, len(data)) + data + bytes(-len(data) % 8)


def by_hand(order: str, name: bytes, values: np.ndarray, kind: int) -> bytes:
    """A file with one array of doubles that are stored as a smaller type, as MATLAB itself does it."""
    content = element(order, 6, struct.pack(order + "II", 6, 0))
    content += element(order, 5, struct.pack(f"{order}{values.ndim}i", *values.shape))
    content += element(order, 1, name)
    content += element(order, kind, values.astype(values.dtype.newbyteorder(order)).tobytes("F"))
    mark = b"IM" if order == "<" else b"MI"
    return b"by hand".ljust(124) + struct.pack(order + "H", 0x0100) + mark + element(order, 14, content)


@pytest.mark.parametrize("compressed", [False, True])
@pytest.mark.parametrize("dtype", ["u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8"])
def test_arrays_are_those_of_scipy(tmp_path: Path, dtype: str, compressed: bool) -> None:
    values = np.random.default_rng(1).integers(0, 100, (3, 4, 5)).astype(dtype)
    content = {"other": "text", "X": values, "one": values[:1, :1, 0], "s": {"a": 1}, "y": values[:, 0].copy()}
    saved(tmp_path / "a.mat", content, compressed=compressed)
    read, expected = arrays(tmp_path / "a.mat", ["y", "one", "X"]), loadmat(tmp_path / "a.mat")
    assert set(read) == {"X", "one", "y"}
    for name, array in read.items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name], strict=True)


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders(tmp_path: Path, order: str) -> None:
    values = np.arange(-6, 6, dtype=np.int16).reshape(3, 4)
    (tmp_path / "a.mat").write_bytes(by_hand(order, b"long_name", values, 3))
    for array in (arrays(tmp_path / "a.mat", ["long_name"])["long_name"], loadmat(tmp_path / "a.mat")["long_name"]):
        np.testing.assert_array_equal(array, values)
    assert arrays(tmp_path / "a.mat", ["long_name"])["long_name"].dtype == np.int16


@pytest.mark.parametrize("compressed", [False, True])
def test_a_table_is_that_of_scipy(tmp_path: Path, compressed: bool) -> None:
    devkit(tmp_path / "meta.mat", compressed=compressed)
    rows = table(tmp_path / "meta.mat", "synsets", ["WNID", "num_children"])
    expected = loadmat(tmp_path / "meta.mat", squeeze_me=True)["synsets"]
    assert [row["WNID"] for row in rows] == [str(row["WNID"]) for row in expected]
    assert [int(row["num_children"].item()) for row in rows] == [0, 0, 3, 0]


def test_what_is_no_array_of_numbers_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {"t": "text", "s": {"a": 1}, "c": np.array([[1j]]), "e": np.zeros((0, 3)), "b": np.ones((2, 2))})
    for name, message in [("t", "t is text"), ("s", "s is a struct"), ("c", "c is complex"), ("e", r"e of shape \[0,")]:
        with pytest.raises(Damaged, match=message):
            arrays(path, ["b", name])
    with pytest.raises(Damaged, match="b is an array, not a struct"):
        table(path, "b", ["a"])
    with pytest.raises(Damaged, match=r"needed are \['z'\]"):
        table(path, "s", ["z"])
    with pytest.raises(Damaged, match="it holds no q and no z"):
        arrays(path, ["z", "b", "q"])
    body = path.read_bytes()[128:]
    path.write_bytes(path.read_bytes() + body)
    with pytest.raises(Damaged, match="it holds b twice"):
        arrays(path, ["b"])


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (b"MATLAB 7.3 MAT-file, Platform: GLNXA64".ljust(124) + b"\x00\x02IM", "version 7.3 .HDF5.; save it .* -v7"),
        (b"\x89HDF\r\n\x1a\n", "version 7.3"),
        (b"", "0 bytes that do not begin with the header"),
        (b"<html>not found</html>" * 30, "660 bytes that do not begin"),
    ],
)
def test_a_file_of_another_version_is_named(tmp_path: Path, head: bytes, message: str) -> None:
    (tmp_path / "test_32x32.mat").write_bytes(head)
    with pytest.raises(InputError, match=rf"test_32x32\.mat is damaged or no SVHN file: .*{message}.*download it"):
        svhn(tmp_path)


@pytest.mark.parametrize(
    ("claimed", "message"),
    [
        ((1 << 28) + 1, r"test_32x32\.mat has .* bytes and inflates to 268,435,457 .* --limits inflated=N"),
        (1 << 28, "it is truncated"),
    ],
)
def test_a_bomb_is_refused_before_it_is_inflated(tmp_path: Path, claimed: int, message: str) -> None:
    whole = by_hand("<", b"X", np.zeros((8, 1000), np.uint8), 2)[136:]
    inner = struct.pack("<II", 14, claimed) + whole.replace(
        struct.pack("<ii", 8, 1000), struct.pack("<ii", 8, claimed // 8 - 7)
    ).replace(struct.pack("<II", 2, 8000), struct.pack("<II", 2, claimed - 56))
    packed = zlib.compress(inner)
    small = by_hand("<", b"y", np.ones((1, 1), np.uint8), 2)
    (tmp_path / "test_32x32.mat").write_bytes(small + struct.pack("<II", 15, len(packed)) + packed)
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match=message):
            svhn(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_the_limit_of_inflated_bytes_holds_for_matlab_files(tmp_path: Path) -> None:
    savemat(tmp_path / "a.mat", {"X": np.zeros((40, 1000), np.uint8)}, do_compression=True)
    assert arrays(tmp_path / "a.mat", ["X"])["X"].shape == (40, 1000)
    usual = Limits(inflated=40_000).use()
    try:
        with pytest.raises(InputError, match=r"a\.mat has .* inflates to 40,0\d\d or more, over the limit of 40,000"):
            arrays(tmp_path / "a.mat", ["X"])
    finally:
        usual.use()
