"""Images as users have them."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageOps

from folders_of_digits import write_odd_files
from oodshape import InputError
from oodshape.images.decode.read import read_image
from oodshape.images.sources.image_set import ImageSource
from oodshape.images.sources.listing import image_set, one_by_one


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    for name in ("b/2.png", "b/1.JPG", "a/x.png", "a/deep/y.gif", ".hidden/z.png", "a/.z.png", "a/notes.txt"):
        path = tmp_path / "tree" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".txt":
            Image.new("RGB", (3, 2)).save(path)
    return tmp_path / "tree"


def below(root: Path, listing: ImageSource) -> list[str]:
    return [str(Path(path).relative_to(root)) for path, _ in listing.pairs()]


def test_a_folder_in_the_order_of_its_names(tree: Path) -> None:
    assert below(tree, one_by_one(tree)) == ["a/x.png", "a/deep/y.gif", "b/1.JPG", "b/2.png"]
    assert one_by_one(tree).count() == 4
    given = image_set(tree)
    assert given.classes == ("a", "b")
    assert sorted(given.files) == sorted(path for path, _ in one_by_one(tree).pairs())
    assert given.labels.tolist() == [0, 0, 1, 1]


def test_lists_globs_files_and_sequences(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "list.txt").write_text("b/2.png 1\n\na/x.png\nmissing one.png\n")
    listing = one_by_one(tree / "list.txt")
    assert list(listing.pairs()) == [("b/2.png", 1), ("a/x.png", -1), ("missing one.png", -1)]
    assert listing.encoded("b/2.png") == str(tree / "b/2.png")
    assert image_set(listing)[0].size == (3, 2)
    with pytest.raises(InputError, match="missing one"):
        image_set(listing)[2]
    (tree / "list.csv").write_text("label,path\n3,b/2.png\n,a/x.png\n")
    assert list(one_by_one(tree / "list.csv").pairs()) == [("b/2.png", 3), ("a/x.png", -1)]
    assert below(tree, one_by_one(f"{tree}/**/*.png")) == ["a/x.png", "b/2.png"]
    assert below(tree, one_by_one(tree / "a" / "x.png")) == ["a/x.png"]
    assert list(one_by_one(["p", Path("q")]).pairs()) == [("p", -1), ("q", -1)]
    monkeypatch.setattr("sys.stdin", io.StringIO("one 1.png\n\ntwo.png\n"))
    assert list(one_by_one("-").pairs()) == [("one 1.png", -1), ("two.png", -1)]
    assert one_by_one("-").count() is None


def test_odd_files_are_read_as_a_training_loader_reads_them(tmp_path: Path) -> None:
    for name, error in write_odd_files(tmp_path).items():
        if error:
            with pytest.raises(InputError, match=error):
                read_image(tmp_path / name, upright=False)
        elif "sixteen" in name:
            # the usual loader makes them white; the high byte is what the picture shows
            wanted = np.asarray(Image.open(tmp_path / name)) >> 8
            assert np.array_equal(np.asarray(read_image(tmp_path / name))[:, :, 0], wanted)
        else:
            with Image.open(tmp_path / name) as image:
                wanted = np.asarray(image.convert("RGBA" if image.mode == "P" else "RGB").convert("RGB"))
                upright = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
            assert np.array_equal(np.asarray(read_image(tmp_path / name, upright=False)), wanted), name
            if name == "turned.jpg":
                assert upright.shape == (24, 20, 3)
                assert np.array_equal(np.asarray(read_image(tmp_path / name)), upright)
