"""CIFAR's, SVHN's and MNIST's files in every layout that is read; the reader of MATLAB files."""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import tracemalloc
import zlib
from pathlib import Path

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from dataset_files import RNG, binary, channel_major, idx, pixels, python2, svhn_file, write
from oodshape import InputError
from oodshape.images.datasets.cifar_mnist_svhn import read_cifar, read_mnist, read_svhn
from oodshape.images.datasets.matlab import DamagedMatlab, read_arrays, read_struct


@pytest.mark.parametrize("inside", [False, True], ids=["above", "folder"])
@pytest.mark.parametrize("layout", ["bin", "py"])
def test_cifar10(tmp_path: Path, layout: str, inside: bool) -> None:
    images, labels = pixels(5), [3, 1, 4, 1, 9]
    folder = tmp_path / f"cifar-10-batches-{layout}"
    for name, part in {"data_batch_1": slice(0, 2), "data_batch_3": slice(2, 5), "test_batch": slice(1, 4)}.items():
        if layout == "bin":
            write(folder / f"{name}.bin", binary(images[part], labels[part]))
        else:
            write(folder / name, python2(channel_major(images[part]), labels=labels[part]))
    root = folder if inside else tmp_path
    train, test = read_cifar(root, 10, train=True), read_cifar(root, 10, train=False)
    assert np.array_equal(train.images, images)
    assert train.labels.tolist() == labels
    assert np.array_equal(test[0], images[1])
    assert test.labels.tolist() == labels[1:4]


class Runs:
    """What an attacker would put into a pickle."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, ...]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    batch = {b"labels": [0], b"data": channel_major(pixels(1)), b"extra": Runs(tmp_path / "ran")}
    content = pickle.dumps(batch, protocol)
    write(tmp_path / "test_batch", content)
    with pytest.raises(InputError, match=r"refused: this pickle asks for .*Nothing of it was run"):
        read_cifar(tmp_path, 10, train=False)
    assert not (tmp_path / "ran").exists()
    pickle.loads(content)  # the attack is a real one
    assert (tmp_path / "ran").exists()


def test_a_forged_memo_index_or_size_takes_no_memory(tmp_path: Path) -> None:
    content, nested = python2(channel_major(0 * pixels(2)), labels=[3, 8]), [8]
    for _ in range(5):
        nested = [nested] * 20
    forged = (b"\x96" + (1 << 26).to_bytes(8, "little"), pickle.dumps({"data": pixels(2), "labels": nested}, 2))
    write(tmp_path / "test_batch", content.replace(b"](", b"]r\xff\xff\xff\x7f("))
    tracemalloc.start()
    try:
        assert read_cifar(tmp_path, 10, train=False).labels.tolist() == [3, 8]
        for each in forged:
            write(tmp_path / "test_batch", each)
            with pytest.raises(InputError, match="damaged or no CIFAR-10 batch"):
                read_cifar(tmp_path, 10, train=False)
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


def test_cifar100_gives_the_fine_labels(tmp_path: Path) -> None:
    images, coarse, fine = pixels(3), [0, 19, 7], [99, 0, 50]
    for name in ("train", "test"):
        write(tmp_path / "cifar-100-binary" / f"{name}.bin", binary(images, coarse, fine))
    data = read_cifar(tmp_path, 100, train=True)
    assert np.array_equal(data.images, images)
    assert data.labels.tolist() == fine
    assert data.fingerprint == read_cifar(str(tmp_path), 100, train=False).fingerprint


def test_cifar_errors_name_the_file_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"looked for cifar-10-batches-bin/data_batch_1.bin .*data get cifar-10"):
        read_cifar(tmp_path, 10, train=True)
    path = write(tmp_path / "test_batch.bin", b"\0" * 3074)
    with pytest.raises(InputError, match="truncated: 3074 bytes, no whole number of records of 3073 bytes"):
        read_cifar(tmp_path, 10, train=False)
    path.write_bytes(b"\x0a" + b"\0" * 3072)
    with pytest.raises(InputError, match=r"label 10 lies outside 0..9"):
        read_cifar(tmp_path, 10, train=False)
    path.unlink()
    write(tmp_path / "test_batch", python2(channel_major(pixels(2)), labels=[1]))
    with pytest.raises(InputError, match=r"1 labels need data \[1, 3072\], got \[2, 3072\]"):
        read_cifar(tmp_path, 10, train=False)
    write(tmp_path / "test_batch", python2(channel_major(pixels(2)), fine_labels=[1, 2]))
    with pytest.raises(InputError, match="no dict with `data` and `labels`"):
        read_cifar(tmp_path, 10, train=False)


@pytest.mark.parametrize("compressed", [False, True])
def test_svhn(tmp_path: Path, compressed: bool) -> None:
    images = pixels(4)
    svhn_file(tmp_path / "test_32x32.mat", images, [1, 10, 9, 10], compressed=compressed)
    data = read_svhn(tmp_path)
    assert np.array_equal(data.images, images)
    assert data.labels.tolist() == [1, 0, 9, 0]
    (tmp_path / "test_32x32.mat").unlink()
    with pytest.raises(InputError, match=r"no SVHN at .*test_32x32.mat; download it: oodshape data get svhn"):
        read_svhn(tmp_path)


def test_svhn_refuses_other_contents(tmp_path: Path) -> None:
    path = tmp_path / "test_32x32.mat"
    for content, message in (
        ({"X": np.zeros((32, 32, 3, 2)), "y": [[1], [2]]}, "X must be uint8"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1]]}, "X holds 2 images, y 1 labels"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [11]]}, "labels 1..10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "it holds no y"),
    ):
        savemat(path, content)
        with pytest.raises(InputError, match=message):
            read_svhn(tmp_path)


@pytest.mark.parametrize("folder", [".", "raw", "MNIST/raw"])
@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist(tmp_path: Path, folder: str, mark: str, suffix: str) -> None:
    images = RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8)
    for what, array in (("images", images), ("labels", np.array([7, 0, 9], np.uint8))):
        content = gzip.compress(idx(array)) if suffix else idx(array)
        write(tmp_path / folder / f"t10k-{what}{mark}idx{array.ndim}-ubyte{suffix}", content)
    test = read_mnist(tmp_path)
    assert np.array_equal(test.images, images)
    assert test.labels.tolist() == [7, 0, 9]


def test_mnist_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"looked for t10k-images-idx3-ubyte, t10k-images-idx3-ubyte.gz"):
        read_mnist(tmp_path)
    images = write(tmp_path / "t10k-images-idx3-ubyte", idx(np.zeros((2, 28, 28), np.uint8)))
    labels = write(tmp_path / "t10k-labels-idx1-ubyte", idx(np.zeros(3, np.uint8)))
    with pytest.raises(InputError, match="holds 3 labels, its image file 2 images"):
        read_mnist(tmp_path)
    labels.write_bytes(images.read_bytes())
    with pytest.raises(InputError, match="it begins 00000803, not 00000801"):
        read_mnist(tmp_path)
    images.write_bytes(images.read_bytes() + b"\0")
    with pytest.raises(
        InputError, match=r"damaged .*1569 bytes or more of values, \[2, 28, 28\] needs 1568.*; delete it"
    ):
        read_mnist(tmp_path)
    images.write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12)  # sizes whose product overflows 64 bits
    with pytest.raises(InputError, match="has 16 bytes and inflates to .* over the limit"):
        read_mnist(tmp_path)


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
    read, expected = read_arrays(tmp_path / "a.mat", ["y", "one", "X"]), loadmat(tmp_path / "a.mat")
    assert set(read) == {"X", "one", "y"}
    for name, array in read.items():
        assert array.dtype == expected[name].dtype
        np.testing.assert_array_equal(array, expected[name], strict=True)


@pytest.mark.parametrize("order", ["<", ">"])
def test_both_byte_orders(tmp_path: Path, order: str) -> None:
    values = np.arange(-6, 6, dtype=np.int16).reshape(3, 4)
    (tmp_path / "a.mat").write_bytes(by_hand(order, b"long_name", values, 3))
    for read in (read_arrays(tmp_path / "a.mat", ["long_name"]), loadmat(tmp_path / "a.mat")):
        np.testing.assert_array_equal(read["long_name"], values)
    assert read_arrays(tmp_path / "a.mat", ["long_name"])["long_name"].dtype == np.int16


@pytest.mark.parametrize("compressed", [False, True])
def test_a_table_is_that_of_scipy(tmp_path: Path, compressed: bool) -> None:
    devkit(tmp_path / "meta.mat", compressed=compressed)
    rows = read_struct(tmp_path / "meta.mat", "synsets", ["WNID", "num_children"])
    expected = loadmat(tmp_path / "meta.mat", squeeze_me=True)["synsets"]
    assert [row["WNID"] for row in rows] == [str(row["WNID"]) for row in expected]
    assert [int(row["num_children"].item()) for row in rows] == [0, 0, 3, 0]


def test_what_is_no_array_of_numbers_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.mat"
    savemat(path, {"t": "text", "s": {"a": 1}, "c": np.array([[1j]]), "e": np.zeros((0, 3)), "b": np.ones((2, 2))})
    for name, message in [("t", "t is text"), ("s", "s is a struct"), ("c", "c is complex"), ("e", r"e of shape \[0,")]:
        with pytest.raises(DamagedMatlab, match=message):
            read_arrays(path, ["b", name])
    with pytest.raises(DamagedMatlab, match="b is an array, not a struct"):
        read_struct(path, "b", ["a"])
    with pytest.raises(DamagedMatlab, match=r"needed are \['z'\]"):
        read_struct(path, "s", ["z"])
    with pytest.raises(DamagedMatlab, match="it holds no q and no z"):
        read_arrays(path, ["z", "b", "q"])
    body = path.read_bytes()[128:]
    path.write_bytes(path.read_bytes() + body)
    with pytest.raises(DamagedMatlab, match="it holds b twice"):
        read_arrays(path, ["b"])


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
    with pytest.raises(InputError, match=rf"test_32x32\.mat is damaged .*{message}.*download it"):
        read_svhn(tmp_path)


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
            read_svhn(tmp_path)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
