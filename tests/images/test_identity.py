"""Identities: paths, pixels and numbers; choices by them hang on nothing else; copies are noticed by any name."""

from __future__ import annotations

import os
import shutil
import tarfile
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oodshape.core.errors import InputError
from oodshape.images import duplicates
from oodshape.images.datasets.synthetic import NoiseSet, Scrambled
from oodshape.images.duplicates import find_copies, find_copies_in_sketch, find_repeated, join_sketches, make_sketch
from oodshape.images.identity import check, draw_keys, from_numbers, from_paths, hash_each, hold_out, smallest
from oodshape.images.sources.image_files import ImageFolder, ImageList
from oodshape.images.sources.image_set import ArraySet, Subset, find_identities, limit_images
from oodshape.images.sources.open_images import open_images


def draw(root: Path, names: list[str]) -> Path:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(root / name)
    return root


NAMES = [f"{kind}/{number:02}.png" for kind in ("cat", "dog") for number in range(20)]


def test_files_are_their_paths_below_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = draw(tmp_path / "here", NAMES)
    shutil.copytree(root, tmp_path / "there" / "deeper")
    wanted = from_paths(NAMES)
    (root / "list.txt").write_text("\n".join(NAMES))
    assert np.array_equal(ImageFolder(root).identities, wanted)
    assert np.array_equal(ImageFolder(tmp_path / "there" / "deeper").identities, wanted)
    assert np.array_equal(ImageList(root / "list.txt").identities, wanted)
    for given_as in (root, root / "list.txt", f"{root}/*/*.png", f"{root}/**/*.png"):
        assert np.array_equal(open_images(given_as).identities, wanted), given_as
    monkeypatch.chdir(root)
    for given_as in (NAMES, [f"./{name}" for name in NAMES], "*/*.png", "."):
        assert np.array_equal(open_images(given_as).identities, wanted), given_as
    assert np.array_equal(from_paths([f"a{os.sep}b.png"]), hash_each(["a/b.png"]))


def test_a_limit_chooses_the_same_files_in_any_order_and_place(tmp_path: Path) -> None:
    root = draw(tmp_path / "data", NAMES)
    (root / "list.txt").write_text("\n".join(reversed(NAMES)))
    for seed in range(3):
        (a, b) = (limit_images(images, 7, seed) for images in (ImageFolder(root), ImageList(root / "list.txt")))
        chosen = [{part.base.names[row] for row in part.indices} for part in (a, b)]
        assert chosen[0] == chosen[1]
        assert len(chosen[0]) == 7
        assert a.indices == sorted(a.indices)
    assert limit_images(ImageFolder(root), 7, 0).indices != limit_images(ImageFolder(root), 7, 1).indices


def test_arrays_are_their_pixels_and_parts_carry_them() -> None:
    pixels = np.random.default_rng(0).integers(256, size=(10, 4, 4), dtype=np.uint8)
    images = ArraySet("some", pixels)
    assert np.array_equal(ArraySet("other", pixels[::-1]).identities, images.identities[::-1])
    assert len(np.unique(images.identities)) == 10
    assert np.array_equal(find_identities(Subset(images, [3, 1])), images.identities[[3, 1]])
    scrambled = Scrambled(images)
    assert not set(scrambled.identities) & (set(images.identities) | set(Scrambled(images, 1).identities))
    assert np.array_equal(Scrambled(Subset(images, [3])).identities, scrambled.identities[3:4])
    assert not set(NoiseSet("uniform", 9).identities) & set(NoiseSet("gaussian", 9).identities)


def test_what_a_user_gives_is_checked() -> None:
    assert check([3, 4], 2).tolist() == [3, 4]
    assert check(np.array([2**64 - 1], np.uint64), 1).tolist() == [2**64 - 1]
    assert np.array_equal(check(["a", "b"], 2), hash_each(["a", "b"]))
    assert np.array_equal(check([Path("a"), Path("b")], 2), hash_each(["a", "b"]))
    for wrong in ([1, 2, 3], [-1, 2], [0.5, 1.0], [True, False], [[1], [2]]):
        with pytest.raises(InputError, match="identities must be 2 texts or whole numbers"):
            check(wrong, 2)


many = st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=60, unique=True)


@given(many, st.floats(0.01, 0.99), st.integers(0, 50), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_holding_out_hangs_on_identity_alone(numbers, share, fewest, seed, chance) -> None:
    identities = np.array(numbers, np.uint64)
    held = hold_out(identities, share, seed, purpose="test", fewest=fewest)
    assert min(fewest, len(numbers) - 1) <= held.sum() < len(numbers)
    chance.shuffle(numbers)
    again = hold_out(np.array(numbers, np.uint64), share, seed, purpose="test", fewest=fewest)
    assert set(identities[held].tolist()) == set(np.array(numbers, np.uint64)[again].tolist())
    twice = hold_out(np.repeat(identities, 2), share, seed, purpose="test", fewest=fewest)
    assert np.array_equal(twice[::2], twice[1::2])  # copies of an image never stand on both sides


def test_purposes_and_seeds_are_independent() -> None:
    identities = from_numbers(20_000)
    subset = smallest(identities, 2000, 0, "subset")
    assert hold_out(identities[subset], 0.2, purpose="calibration").mean() == pytest.approx(0.2, abs=0.03)
    drawn = [draw_keys(identities, seed, purpose) / 2.0**64 for seed, purpose in ((0, "a"), (1, "a"), (0, "b"))]
    correlation = np.corrcoef([*drawn, identities.astype(float)])
    assert np.abs(correlation - np.eye(4)).max() < 0.03
    assert [draws.mean() for draws in drawn] == pytest.approx([0.5] * 3, abs=0.01)


def write(folder: Path, names: str, seed: int) -> None:
    folder.mkdir(exist_ok=True)
    rng = np.random.default_rng(seed)
    for name in names:
        PIL.Image.fromarray(rng.integers(256, size=(8, 8, 3), dtype=np.uint8)).save(folder / f"{name}.bmp")


def test_files_by_place_and_by_bytes(tmp_path: Path) -> None:
    write(tmp_path / "train", "abc", 0)
    write(tmp_path / "val", "xyz", 1)  # all of one size: bmp
    train, val = tmp_path / "train", tmp_path / "val"
    assert find_copies(open_images(val), open_images(train)) == []
    shutil.copy(train / "b.bmp", val / "renamed.bmp")
    (val / "link.bmp").symlink_to(train / "c.bmp")
    (val / "empty.bmp").touch()
    (train / "empty.bmp").touch()
    found = find_copies(open_images(val), open_images(train))
    assert sorted(map(str, found)) == [str(train / "c.bmp"), str(val / "renamed.bmp")]
    # equal ends are not enough
    data = bytearray((train / "a.bmp").read_bytes())
    data[60] ^= 1
    (val / "almost.bmp").write_bytes(data)
    assert str(val / "almost.bmp") not in find_copies(open_images(val), open_images(train))


def test_pictures_by_pixels_with_files_too(tmp_path: Path) -> None:
    write(tmp_path / "train", "abc", 0)
    pictures = [PIL.Image.open(tmp_path / "train" / f"{name}.bmp") for name in "cab"]
    others = np.random.default_rng(5).integers(256, size=(3, 8, 8, 3), dtype=np.uint8)
    train = open_images(tmp_path / "train")
    assert find_copies(open_images([*others, pictures[0]]), train) == ["image 3"]
    assert find_copies(open_images(others), train) == []
    assert find_copies(train, open_images(pictures[:1])) == [str(tmp_path / "train" / "c.bmp")]
    assert find_copies(open_images(pictures), open_images([np.asarray(each) for each in pictures[1:]])) == [
        "image 1",
        "image 2",
    ]


def test_repeated_images_in_one_set(tmp_path: Path) -> None:
    write(tmp_path, "abc", 0)
    shutil.copy(tmp_path / "b.bmp", tmp_path / "c2.bmp")
    (tmp_path / "d.bmp").symlink_to(tmp_path / "a.bmp")
    files = open_images(tmp_path)
    assert [Path(files.called(row)).name for row in find_repeated(files)] == ["c2.bmp", "d.bmp"]
    assert find_repeated(open_images([files[row] for row in range(len(files))])) == [3, 4]


@pytest.mark.parametrize("kind", ["files", "tar", "memory"])
def test_a_sketch_finds_copies_in_any_split(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(duplicates, "SKETCH", 8)
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
    train, other = (open_images(str(tmp_path / given.format(name))) for name in ("train", "other"))
    if kind == "memory":
        train, other = (open_images([each[row] for row in range(len(each))]) for each in (train, other))
    sketch = make_sketch(train)
    assert len(sketch) == 8
    parts = [make_sketch(Subset(train, range(first, 40, 3))) for first in range(3)]
    assert np.array_equal(join_sketches(parts), sketch)
    assert len(find_copies_in_sketch(train, sketch)) == 8
    assert find_copies_in_sketch(other, sketch) == []
    assert len(make_sketch(Subset(train, []))) == 0
