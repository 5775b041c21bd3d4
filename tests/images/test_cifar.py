"""CIFAR's files: right in every published layout, and a pickle runs nothing."""

from __future__ import annotations

import os
import pickle
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from dataset_files import RNG, binary, channel_major, pixels, python2, write
from oodshape import InputError
from oodshape.images.readers.cifar import cifar


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
    with pytest.raises(InputError, match=r"looked for cifar-10-batches-bin/data_batch_1.bin .*cifar-10-binary.tar.gz"):
        cifar(tmp_path, 10, train=True)
    with pytest.raises(InputError, match="kind must be 10 or 100, got 20"):
        cifar(tmp_path, 20, train=True)  # type: ignore[arg-type]
    path = write(tmp_path / "test_batch.bin", b"\0" * 3074)
    with pytest.raises(InputError, match="truncated: 3074 bytes are no whole number of CIFAR-10 records of 3073 bytes"):
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


def test_real_cifar10(shared: Path) -> None:
    train, test = (cifar(shared / "data" / "cifar10", 10, train=part) for part in (True, False))
    assert (train.images.shape, len(test)) == ((4000, 32, 32, 3), 5000)
    for data in (train, test):
        assert (np.bincount(data.labels, minlength=10) > 0.08 * len(data)).all()
        # neighbours in a photograph are alike: the pixels stand in the right order
        steps = np.abs(np.diff(data.images[:500].astype(int), axis=1)).mean()
        assert steps < 0.25 * np.abs(np.diff(RNG.permutation(data.images[:500].ravel()).astype(int))).mean()
