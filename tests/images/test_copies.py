"""A copy of an image is noticed under another name, and in another form."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import PIL.Image

from oodshape.images.overlap import copies
from oodshape.images.sources.listing import image_set


def write(folder: Path, names: str, seed: int) -> None:
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    for name in names:
        PIL.Image.fromarray(rng.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(folder / f"{name}.bmp")


def test_files_by_place_and_by_bytes(tmp_path: Path) -> None:
    write(tmp_path / "train", "abc", 0)
    write(tmp_path / "val", "xyz", 1)  # all of one size: bmp
    train, val = tmp_path / "train", tmp_path / "val"
    assert copies(image_set(val), image_set(train)) == []
    shutil.copy(train / "b.bmp", val / "renamed.bmp")
    (val / "link.bmp").symlink_to(train / "c.bmp")
    (val / "empty.bmp").touch()
    (train / "empty.bmp").touch()
    found = copies(image_set(val), image_set(train))
    assert sorted(map(str, found)) == [str(train / "c.bmp"), str(val / "renamed.bmp")]
    # equal ends are not enough
    data = bytearray((train / "a.bmp").read_bytes())
    data[60] ^= 1
    (val / "almost.bmp").write_bytes(data)
    assert str(val / "almost.bmp") not in copies(image_set(val), image_set(train))


def test_pictures_by_pixels_with_files_too(tmp_path: Path) -> None:
    write(tmp_path / "train", "abc", 0)
    pictures = [PIL.Image.open(tmp_path / "train" / f"{name}.bmp") for name in "cab"]
    others = np.random.default_rng(5).integers(256, size=(3, 8, 8, 3), dtype=np.uint8)
    train = image_set(tmp_path / "train")
    assert copies(image_set([*others, pictures[0]]), train) == ["image 3"]
    assert copies(image_set(others), train) == []
    assert copies(train, image_set(pictures[:1])) == [str(tmp_path / "train" / "c.bmp")]
    assert copies(image_set(pictures), image_set([np.asarray(each) for each in pictures[1:]])) == ["image 1", "image 2"]
