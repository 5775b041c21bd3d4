"""OpenOOD's sets where its users have them, held to what was published."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from oodshape import InputError
from oodshape.images.datasets.catalog import CATALOG, open_source, status
from oodshape.images.sources.image_set import limited
from openood_files import write_openood

NAMES = ["openood-cifar10", "openood-cifar100", "openood-imagenet200", "openood-imagenet"]


@pytest.mark.parametrize("name", NAMES)
def test_every_list_is_read_where_it_lies(name: str, tmp_path: Path) -> None:
    assert {row.state for row in status(tmp_path, name)} == {"missing"}
    write_openood(tmp_path, name, count=2, side=8)
    rows = status(tmp_path, name)
    assert {(row.state, row.images) for row in rows} <= {("differs", 2), ("found", 2)}  # found: no count is known
    assert all(f"lists 2 images, the published list {row.entry.images:,}" in row.reason for row in rows if row.reason)
    for role, entry in CATALOG[name]:
        images = entry.open(tmp_path)
        inside = role in ("train", "val", "test", "shifted")
        assert images.labels.tolist() == ([0, 1] if inside else [-1, -1])
        assert np.asarray(images[1]).shape[2] == 3
    kind = "classic" if "cifar" in name else "largescale"
    assert {entry.layouts[0].folder for _, entry in CATALOG[name]} <= {f"images_{kind}", "images_classic"}


def test_a_list_that_is_not_the_published_one_is_refused_by_name(tmp_path: Path) -> None:
    write_openood(tmp_path, "openood-cifar10", count=3, side=8)
    source = "catalog:openood-cifar10/mnist"
    with pytest.raises(InputError, match=r"test_mnist\.txt lists 3 images, the published list 70,000; .*--other-lists"):
        open_source(source, tmp_path, tmp_path)
    assert len(open_source(source, tmp_path, tmp_path, any_list=True)) == 3


def test_a_checksum_sees_other_images_but_no_line_ends(tmp_path: Path) -> None:
    write_openood(tmp_path, "openood-cifar10", count=3, side=8)
    entry = CATALOG["openood-cifar10"].named()["test"]
    file = tmp_path / entry.listed
    text = file.read_bytes()
    known = replace(entry, images=3, md5=hashlib.md5(text).hexdigest())
    assert known.differs(tmp_path, 3) == ""
    for same in (text.replace(b"\n", b"\r\n"), text.rstrip(b"\n")):
        file.write_bytes(same)
        assert known.differs(tmp_path, 3) == ""
    file.write_bytes(text.replace(b" 2\n", b" 1\n"))
    assert "lists other images, or in another order, than the published list" in known.differs(tmp_path, 3)


def test_lists_without_their_images_are_missing_and_said_to_be(tmp_path: Path) -> None:
    write_openood(tmp_path, "openood-cifar100", count=2, side=8)
    (tmp_path / "images_classic" / "svhn").rename(tmp_path / "elsewhere")
    rows = {row.entry.name: row for row in status(tmp_path, "openood-cifar100")}
    svhn = rows["svhn"]
    assert (svhn.role, svhn.state, svhn.images, svhn.entry.images) == ("far", "missing", None, 26_032)
    assert rows["tin"].state == "differs"
    assert len(rows) == 10
    (tmp_path / "images_classic" / "mnist" / "test" / "8_1.jpg").unlink()
    reason = {row.entry.name: row.reason for row in status(tmp_path, "openood-cifar100")}["mnist"]
    assert "1 of the 2 files in" in reason
    assert "mnist/test/8_1.jpg" in reason


def test_training_images_of_imagenet_need_no_list(tmp_path: Path) -> None:
    for wnid in ("n01440764", "n01443537"):
        file = tmp_path / "images_largescale" / "imagenet_1k" / "train" / wnid / f"{wnid}_1.JPEG"
        file.parent.mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(file)
    assert CATALOG["openood-imagenet"].named()["train"].open(tmp_path).labels.tolist() == [0, 1]
    assert open_source("catalog:openood-imagenet/train", tmp_path, tmp_path).name == "train"


def test_images_are_not_turned(tmp_path: Path) -> None:
    write_openood(tmp_path, "openood-cifar10", count=1, side=8)
    file = tmp_path / "images_classic" / "svhn" / "test" / "000000_2.jpg"
    exif = Image.Exif()
    exif[0x0112] = 6  # a quarter turn
    Image.new("RGB", (20, 10)).save(file, exif=exif)
    images = CATALOG["openood-cifar10"].named()["svhn"].open(tmp_path)
    assert images[0].size == limited(images, 1)[0].size == (20, 10)
