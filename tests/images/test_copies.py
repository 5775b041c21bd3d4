"""A copy of an image is noticed under another name, and in another form."""

from __future__ import annotations

import shutil
import tarfile
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from oodshape.images import overlap
from oodshape.images.overlap import copies, copies_in_sketch, join_sketches, repeated, sketch_of
from oodshape.images.sources.image_set import Subset
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


def test_repeated_images_in_one_set(tmp_path: Path) -> None:
    write(tmp_path, "abc", 0)
    shutil.copy(tmp_path / "b.bmp", tmp_path / "c2.bmp")
    (tmp_path / "d.bmp").symlink_to(tmp_path / "a.bmp")
    files = image_set(tmp_path)
    assert [Path(files.called(row)).name for row in repeated(files)] == ["c2.bmp", "d.bmp"]
    assert repeated(image_set([files[row] for row in range(len(files))])) == [3, 4]


@pytest.mark.parametrize("kind", ["files", "tar", "memory"])
def test_a_sketch_finds_copies_in_any_split(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overlap, "SKETCH", 8)
    rng = np.random.default_rng(0)
    for number in range(60):  # sizes differ, as those of photographs do
        side = 8 + number % 7
        folder = tmp_path / ("train" if number < 40 else "other")
        folder.mkdir(exist_ok=True)
        PIL.Image.fromarray(rng.integers(256, size=(side, 8, 3), dtype=np.uint8)).save(folder / f"{number}.png")
    if kind == "tar":
        for name in ("train", "other"):
            with tarfile.open(tmp_path / f"{name}.tar", "w") as tar:
                tar.add(tmp_path / name, name)
    given = {"files": "{}", "tar": "{}.tar", "memory": "{}"}[kind]
    train, other = (image_set(str(tmp_path / given.format(name))) for name in ("train", "other"))
    if kind == "memory":
        train, other = (image_set([each[row] for row in range(len(each))]) for each in (train, other))
    sketch = sketch_of(train)
    assert len(sketch) == 8
    parts = [sketch_of(Subset(train, range(first, 40, 3))) for first in range(3)]
    assert np.array_equal(join_sketches(parts), sketch)
    assert len(copies_in_sketch(train, sketch)) == 8
    assert copies_in_sketch(other, sketch) == []
    assert len(sketch_of(Subset(train, []))) == 0
