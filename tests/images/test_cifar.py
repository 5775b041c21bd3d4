"""CIFAR's, SVHN's and MNIST's files: right in every published layout, and a pickle runs nothing."""

from __future__ import annotations

import gzip
import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from dataset_files import RNG, binary, channel_major, idx, pixels, python2, svhn_file, write
from oodshape import InputError
from oodshape.images.datasets.cifar_mnist_svhn import cifar, mnist, svhn


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
    train, test = cifar(root, 10, train=True), cifar(root, 10, train=False)
    assert np.array_equal(train.images, images)
    assert train.labels.tolist() == labels
    assert np.array_equal(test[0], images[1])
    assert test.labels.tolist() == labels[1:4]


@pytest.mark.parametrize("layout", ["binary", "python"])
def test_cifar100_gives_the_fine_labels(tmp_path: Path, layout: str) -> None:
    images, coarse, fine = pixels(3), [0, 19, 7], [99, 0, 50]
    for name in ("train", "test"):
        if layout == "binary":
            write(tmp_path / "cifar-100-binary" / f"{name}.bin", binary(images, coarse, fine))
        else:
            content = python2(channel_major(images), coarse_labels=coarse, fine_labels=fine)
            write(tmp_path / "cifar-100-python" / name, content)
    data = cifar(tmp_path, 100, train=True)
    assert np.array_equal(data.images, images)
    assert data.labels.tolist() == fine
    assert data.fingerprint == cifar(str(tmp_path), 100, train=False).fingerprint


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize("order", ["C", "F"])
def test_cifar_pickles_of_today(tmp_path: Path, protocol: int, order: str) -> None:
    images = pixels(4)
    batch = {"data": np.array(channel_major(images), order=order), "labels": [0, 1, 2, 3]}
    write(tmp_path / "test_batch", pickle.dumps(batch, protocol))
    data = cifar(tmp_path, 10, train=False)
    assert np.array_equal(data.images, images)
    assert data.labels.tolist() == [0, 1, 2, 3]


def test_a_forged_memo_index_takes_no_memory(tmp_path: Path) -> None:
    content = python2(channel_major(pixels(2)), labels=[3, 8])
    write(tmp_path / "test_batch", content.replace(b"](", b"]r\xff\xff\xff\x7f("))
    tracemalloc.start()
    try:
        assert cifar(tmp_path, 10, train=False).labels.tolist() == [3, 8]
        assert tracemalloc.get_traced_memory()[1] < 2**24
    finally:
        tracemalloc.stop()


class Runs:
    """What an attacker would put into a pickle."""

    def __init__(self, function: Callable[..., object], *arguments: object) -> None:
        self.call = (function, arguments)

    def __reduce__(self) -> tuple[object, ...]:
        return self.call


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_malicious_pickle_runs_nothing(tmp_path: Path, protocol: int) -> None:
    trace = tmp_path / "ran"
    for call in (
        Runs(os.system, f"touch {trace}"),
        Runs(eval, f"open({str(trace)!r}, 'w')"),
        Runs(os.mkdir, str(trace)),
    ):
        batch = {b"labels": [0], b"data": channel_major(pixels(1)), b"extra": call}
        path = write(tmp_path / "test_batch", pickle.dumps(batch, protocol))
        with pytest.raises(InputError, match=r"refused: this pickle asks for .*Nothing of it was run") as error:
            cifar(tmp_path, 10, train=False)
        assert str(path) in str(error.value)
        assert not trace.exists()
    pickle.loads(pickle.dumps(Runs(os.mkdir, str(trace)), protocol))  # the attack is a real one
    assert trace.exists()


def test_array_stand_ins_take_no_objects(tmp_path: Path) -> None:
    for data in (np.array([[None] * 3072]), np.zeros((1, 3072), np.float32)):
        write(tmp_path / "test_batch", pickle.dumps({"data": data, "labels": [0]}, 4))
        with pytest.raises(InputError, match="does not hold uint8"):
            cifar(tmp_path, 10, train=False)


def test_cifar_errors_name_the_file_and_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"looked for cifar-10-batches-bin/data_batch_1.bin .*data get cifar-10"):
        cifar(tmp_path, 10, train=True)
    with pytest.raises(InputError, match="kind must be 10 or 100, got 20"):
        cifar(tmp_path, 20, train=True)  # type: ignore[arg-type]
    path = write(tmp_path / "test_batch.bin", b"\0" * 3074)
    with pytest.raises(InputError, match="truncated: 3074 bytes, no whole number of records of 3073 bytes"):
        cifar(tmp_path, 10, train=False)
    path.write_bytes(b"\x0a" + b"\0" * 3072)
    with pytest.raises(InputError, match=r"label 10 lies outside 0..9"):
        cifar(tmp_path, 10, train=False)
    path.unlink()
    write(tmp_path / "test_batch", python2(channel_major(pixels(2)), labels=[1]))
    with pytest.raises(InputError, match=r"1 labels need data \[1, 3072\], got \[2, 3072\]"):
        cifar(tmp_path, 10, train=False)
    write(tmp_path / "test_batch", python2(channel_major(pixels(2)), fine_labels=[1, 2]))
    with pytest.raises(InputError, match="no dict with `data` and `labels`"):
        cifar(tmp_path, 10, train=False)


@pytest.mark.parametrize("compressed", [False, True])
def test_svhn(tmp_path: Path, compressed: bool) -> None:
    images = pixels(4)
    svhn_file(tmp_path / "test_32x32.mat", images, [1, 10, 9, 10], compressed=compressed)
    data = svhn(tmp_path)
    assert np.array_equal(data.images, images)
    assert data.labels.tolist() == [1, 0, 9, 0]
    (tmp_path / "test_32x32.mat").unlink()
    with pytest.raises(InputError, match=r"no SVHN at .*test_32x32.mat; download it: oodshape data get svhn"):
        svhn(tmp_path)


def test_svhn_refuses_other_contents(tmp_path: Path) -> None:
    path = tmp_path / "test_32x32.mat"
    for content, message in (
        ({"X": np.zeros((32, 32, 3, 2)), "y": [[1], [2]]}, "X must be uint8"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1]]}, "X holds 2 images, y 1 labels"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [11]]}, "labels 1..10"),
        ({"X": np.zeros((32, 32, 3, 2), np.uint8)}, "X and y cannot be read"),
    ):
        savemat(path, content)
        with pytest.raises(InputError, match=message):
            svhn(tmp_path)


@pytest.mark.parametrize("folder", [".", "raw", "MNIST/raw"])
@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_mnist(tmp_path: Path, folder: str, mark: str, suffix: str) -> None:
    images = RNG.integers(0, 256, (3, 28, 28), dtype=np.uint8)
    for what, array in (("images", images), ("labels", np.array([7, 0, 9], np.uint8))):
        content = gzip.compress(idx(array)) if suffix else idx(array)
        write(tmp_path / folder / f"t10k-{what}{mark}idx{array.ndim}-ubyte{suffix}", content)
    test = mnist(tmp_path)
    assert np.array_equal(test.images, images)
    assert test.labels.tolist() == [7, 0, 9]


def test_mnist_errors(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"looked for t10k-images-idx3-ubyte, t10k-images-idx3-ubyte.gz"):
        mnist(tmp_path)
    images = write(tmp_path / "t10k-images-idx3-ubyte", idx(np.zeros((2, 28, 28), np.uint8)))
    labels = write(tmp_path / "t10k-labels-idx1-ubyte", idx(np.zeros(3, np.uint8)))
    with pytest.raises(InputError, match="holds 3 labels, its image file 2 images"):
        mnist(tmp_path)
    labels.write_bytes(images.read_bytes())
    with pytest.raises(InputError, match="it begins with 00000803, not 00000801"):
        mnist(tmp_path)
    images.write_bytes(images.read_bytes() + b"\0")
    with pytest.raises(InputError, match=r"is damaged: 1585 bytes, but needs 1584 bytes for \[2, 28, 28\]"):
        mnist(tmp_path)
    images.write_bytes(bytes([0, 0, 8, 3]) + b"\xff" * 12)  # sizes whose product overflows 64 bits
    with pytest.raises(InputError, match="is damaged: 16 bytes"):
        mnist(tmp_path)
