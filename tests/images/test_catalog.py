"""The table of the paper's data: complete, true to the protocol, and honest about what lies on the disk."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from scipy.io import savemat

from oodshape import InputError
from oodshape.images.datasets.catalog import CATALOG, Status, status

PAPER = ("imagenet", "cifar10", "cifar100")


def rows(root: Path, benchmark: str | None = None) -> dict[str, Status]:
    names = PAPER if benchmark is None else (benchmark,)
    return {row.entry.name: row for name in names for row in status(root, name)}


def pictures(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (8, 8)).save(folder / name)


def test_nothing_there_is_missing_and_no_exception(tmp_path: Path) -> None:
    for root in (tmp_path, tmp_path / "nowhere", str(tmp_path)):
        found = [row for name in CATALOG for row in status(root, name)]
        assert len(found) == sum(len(list(sets)) for sets in CATALOG.values()) >= 30
        assert {row.state for row in found} == {"missing"}
        assert {row.images for row in found} == {None}
    with pytest.raises(InputError, match=r"SVHN: not below .*; run `oodshape data get svhn .* put it at .*svhn"):
        CATALOG["cifar10"].named()["SVHN"].open(tmp_path)
    with pytest.raises(InputError, match="needs an account at image-net.org .* oodshape bench imagenet-v2"):
        CATALOG["imagenet"].named()["test"].open(tmp_path)


def idx(array: np.ndarray) -> bytes:
    return bytes([0, 0, 8, array.ndim]) + b"".join(n.to_bytes(4, "big") for n in array.shape) + array.tobytes()


def official(root: Path) -> None:
    """A tiny copy of everything, as the archives unpack."""
    record = bytes(3073)
    for kind, folder, train, test in (
        (10, "cifar-10-batches-bin", "data_batch_1.bin", "test_batch.bin"),
        (100, "cifar-100-binary", "train.bin", "test.bin"),
    ):
        place = root / f"cifar{kind}" / folder
        place.mkdir(parents=True)
        (place / train).write_bytes((record if kind == 10 else bytes(3074)) * 3)
        (place / test).write_bytes((record if kind == 10 else bytes(3074)) * 2)
    (root / "mnist").mkdir()
    (root / "mnist" / "t10k-images-idx3-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros((2, 28, 28), np.uint8))))
    (root / "mnist" / "t10k-labels-idx1-ubyte.gz").write_bytes(gzip.compress(idx(np.zeros(2, np.uint8))))
    (root / "svhn").mkdir()
    savemat(root / "svhn" / "test_32x32.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [10]]})
    pictures(root / "imagenet", "train/n01440764/a.JPEG", "train/n01443537/b.JPEG", "train/n01443537/c.JPEG")
    pictures(root / "imagenet" / "val", "ILSVRC2012_val_00000001.JPEG", "ILSVRC2012_val_00000002.JPEG")
    (root / "imagenet" / "val.txt").write_text("ILSVRC2012_val_00000001.JPEG 65\nILSVRC2012_val_00000002.JPEG 970\n")
    for folder in (
        *("species/fungi", "iNaturalist/images", "SUN/images", "Places/images", "openimage_o", "imagenet-o/n01443537"),
        *("dtd/images/banded", "tiny-imagenet-200/val/images", "places365", "LSUN/test", "LSUN_resize/LSUN_resize"),
        "iSUN/iSUN_patches",
    ):
        pictures(root / folder, "a.jpg", "b.jpeg")


def test_the_official_layouts_are_found(tmp_path: Path) -> None:
    official(tmp_path)
    found = [row for name in PAPER for row in status(tmp_path, name)]
    assert [(row.entry.name, row.reason) for row in found if row.state != "found"] == []
    assert {row.entry.name for row in found if row.images == 3} == {
        "ImageNet train",
        "CIFAR-10 train",
        "CIFAR-100 train",
    }
    assert {row.images for row in found} == {2, 3}
    val = CATALOG["imagenet"].named()["test"].open(tmp_path)
    assert val.labels.tolist() == [65, 970]
    for name in PAPER:
        for _, entry in CATALOG[name]:
            data = entry.open(tmp_path)
            assert data.name == entry.name
            assert len(data.fingerprint) == 16
            assert np.asarray(data[0]).dtype == np.uint8


def test_the_official_layout_comes_before_a_folder_of_images(tmp_path: Path) -> None:
    pictures(tmp_path / "svhn" / "test", "a.png", "b.png", "c.png")
    assert rows(tmp_path)["SVHN"].images == 3
    savemat(tmp_path / "svhn" / "test_32x32.mat", {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": [[1], [10]]})
    assert rows(tmp_path)["SVHN"].images == 2


def test_what_is_damaged_is_reported_with_the_reason(tmp_path: Path) -> None:
    official(tmp_path)
    cut = {
        "CIFAR-10": ("cifar10/cifar-10-batches-bin/test_batch.bin", "records of 3073 bytes"),
        "CIFAR-100 train": ("cifar100/cifar-100-binary/train.bin", "records of 3074 bytes"),
        "MNIST": ("mnist/t10k-images-idx3-ubyte.gz", "is damaged"),
        "SVHN": ("svhn/test_32x32.mat", "is damaged or no SVHN file"),
    }
    for path, _ in cut.values():
        (tmp_path / path).write_bytes((tmp_path / path).read_bytes()[:-9])
    for file in (tmp_path / "iSUN" / "iSUN_patches").iterdir():
        file.unlink()
    found = rows(tmp_path)
    for name, (path, reason) in cut.items():
        assert found[name].state == "damaged"
        assert found[name].images is None
        assert str(tmp_path / path) in found[name].reason
        assert reason in found[name].reason
    assert "no image lies in" in found["iSUN"].reason
    assert {row.entry.name for row in found.values() if row.state == "damaged"} == {*cut, "iSUN"}
