"""CIFAR's, SVHN's and MNIST's files: right in every layout that is read."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy.io import savemat

from dataset_files import RNG, binary, idx, pixels, svhn_file, write
from oodshape import InputError
from oodshape.images.datasets.cifar_mnist_svhn import cifar, mnist, svhn


@pytest.mark.parametrize("inside", [False, True], ids=["above", "folder"])
def test_cifar10(tmp_path: Path, inside: bool) -> None:
    images, labels = pixels(5), [3, 1, 4, 1, 9]
    folder = tmp_path / "cifar-10-batches-bin"
    for name, part in {"data_batch_1": slice(0, 2), "data_batch_3": slice(2, 5), "test_batch": slice(1, 4)}.items():
        write(folder / f"{name}.bin", binary(images[part], labels[part]))
    root = folder if inside else tmp_path
    train, test = cifar(root, 10, train=True), cifar(root, 10, train=False)
    assert np.array_equal(train.images, images)
    assert train.labels.tolist() == labels
    assert np.array_equal(test[0], images[1])
    assert test.labels.tolist() == labels[1:4]


def test_cifar100_gives_the_fine_labels(tmp_path: Path) -> None:
    images, coarse, fine = pixels(3), [0, 19, 7], [99, 0, 50]
    for name in ("train", "test"):
        write(tmp_path / "cifar-100-binary" / f"{name}.bin", binary(images, coarse, fine))
    data = cifar(tmp_path, 100, train=True)
    assert np.array_equal(data.images, images)
    assert data.labels.tolist() == fine
    assert data.fingerprint == cifar(str(tmp_path), 100, train=False).fingerprint


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
    write(tmp_path / "cifar-10-batches-py" / "test_batch", b"a pickle")
    with pytest.raises(InputError, match="pickles are not read"):
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
