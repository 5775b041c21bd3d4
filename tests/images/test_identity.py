"""Identities: paths, pixels and numbers; choices by them hang on nothing else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from oodshape.core.errors import InputError
from oodshape.images.datasets.synthetic import NoiseSet, Scrambled
from oodshape.images.identity import checked, hashed, held_out, keys, numbered, of_paths, smallest
from oodshape.images.sources.folders import ImageFolder, ImageList
from oodshape.images.sources.image_set import ArraySet, Subset, identities_of, limited
from oodshape.images.sources.listing import image_set


def draw(root: Path, names: list[str]) -> Path:
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        PIL.Image.fromarray(np.full((4, 4, 3), number, np.uint8)).save(root / name)
    return root


NAMES = [f"{kind}/{number:02}.png" for kind in ("cat", "dog") for number in range(20)]


def test_files_are_their_paths_below_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = draw(tmp_path / "here", NAMES)
    shutil.copytree(root, tmp_path / "there" / "deeper")
    wanted = of_paths(NAMES)
    (root / "list.txt").write_text("\n".join(NAMES))
    assert np.array_equal(ImageFolder(root).identities, wanted)
    assert np.array_equal(ImageFolder(tmp_path / "there" / "deeper").identities, wanted)
    assert np.array_equal(ImageList(root / "list.txt").identities, wanted)
    for given_as in (root, root / "list.txt", f"{root}/*/*.png", f"{root}/**/*.png"):
        assert np.array_equal(image_set(given_as).identities, wanted), given_as
    monkeypatch.chdir(root)
    for given_as in (NAMES, [f"./{name}" for name in NAMES], "*/*.png", "."):
        assert np.array_equal(image_set(given_as).identities, wanted), given_as
    assert np.array_equal(of_paths([f"a{os.sep}b.png"]), hashed(["a/b.png"]))


def test_a_limit_chooses_the_same_files_in_any_order_and_place(tmp_path: Path) -> None:
    root = draw(tmp_path / "data", NAMES)
    (root / "list.txt").write_text("\n".join(reversed(NAMES)))
    for seed in range(3):
        (a, b) = (limited(images, 7, seed) for images in (ImageFolder(root), ImageList(root / "list.txt")))
        chosen = [{part.base.names[row] for row in part.indices} for part in (a, b)]
        assert chosen[0] == chosen[1]
        assert len(chosen[0]) == 7
        assert a.indices == sorted(a.indices)
    assert limited(ImageFolder(root), 7, 0).indices != limited(ImageFolder(root), 7, 1).indices


def test_arrays_are_their_pixels_and_parts_carry_them() -> None:
    pixels = np.random.default_rng(0).integers(256, size=(10, 4, 4), dtype=np.uint8)
    images = ArraySet("some", pixels)
    assert np.array_equal(ArraySet("other", pixels[::-1]).identities, images.identities[::-1])
    assert len(np.unique(images.identities)) == 10
    assert np.array_equal(identities_of(Subset(images, [3, 1])), images.identities[[3, 1]])
    scrambled = Scrambled(images)
    assert not set(scrambled.identities) & (set(images.identities) | set(Scrambled(images, 1).identities))
    assert np.array_equal(Scrambled(Subset(images, [3])).identities, scrambled.identities[3:4])
    assert not set(NoiseSet("uniform", 9).identities) & set(NoiseSet("gaussian", 9).identities)


def test_a_set_of_ones_own_is_numbered() -> None:
    class Own:
        def __len__(self) -> int:
            return 3

    assert identities_of(Own()).tolist() == [0, 1, 2]
    assert not set(numbered(50, "a")) & (set(numbered(50, "b")) | set(numbered(50)))


def test_what_a_user_gives_is_checked() -> None:
    assert checked([3, 4], 2).tolist() == [3, 4]
    assert checked(np.array([2**64 - 1], np.uint64), 1).tolist() == [2**64 - 1]
    assert np.array_equal(checked(["a", "b"], 2), hashed(["a", "b"]))
    assert np.array_equal(checked([Path("a"), Path("b")], 2), hashed(["a", "b"]))
    for wrong in ([1, 2, 3], [-1, 2], [0.5, 1.0], [True, False], [[1], [2]]):
        with pytest.raises(InputError, match="identities must be 2 texts or whole numbers"):
            checked(wrong, 2)


many = st.lists(st.integers(0, 2**64 - 1), min_size=2, max_size=60, unique=True)


@given(many, st.floats(0.01, 0.99), st.integers(0, 50), st.integers(0, 3), st.randoms(use_true_random=False))
@settings(max_examples=200)
def test_holding_out_hangs_on_identity_alone(numbers, share, fewest, seed, chance) -> None:
    identities = np.array(numbers, np.uint64)
    held = held_out(identities, share, seed, purpose="test", fewest=fewest)
    assert min(fewest, len(numbers) - 1) <= held.sum() < len(numbers)
    chance.shuffle(numbers)
    again = held_out(np.array(numbers, np.uint64), share, seed, purpose="test", fewest=fewest)
    assert set(identities[held].tolist()) == set(np.array(numbers, np.uint64)[again].tolist())
    twice = held_out(np.repeat(identities, 2), share, seed, purpose="test", fewest=fewest)
    assert np.array_equal(twice[::2], twice[1::2])  # copies of an image never stand on both sides


def test_large_sets_decide_image_by_image() -> None:
    identities = numbered(100_000)
    held = held_out(identities, 0.2, purpose="test")
    parts = [held_out(part, 0.2, purpose="test") for part in np.split(identities, [1000, 60_000])]
    assert np.array_equal(np.concatenate(parts), held)
    assert held.mean() == pytest.approx(0.2, abs=0.005)


def test_purposes_and_seeds_are_independent() -> None:
    identities = numbered(20_000)
    subset = smallest(identities, 2000, 0, "subset")
    assert held_out(identities[subset], 0.2, purpose="calibration").mean() == pytest.approx(0.2, abs=0.03)
    drawn = [keys(identities, seed, purpose) / 2.0**64 for seed, purpose in ((0, "a"), (1, "a"), (0, "b"))]
    correlation = np.corrcoef([*drawn, identities.astype(float)])
    assert np.abs(correlation - np.eye(4)).max() < 0.03
    assert [draws.mean() for draws in drawn] == pytest.approx([0.5] * 3, abs=0.01)
