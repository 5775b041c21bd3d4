"""One order of files for every way to give a folder, and links that lead back."""

from __future__ import annotations

import glob
import os
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from oodshape.core.errors import InputError
from oodshape.images.sources.folders import ImageFolder
from oodshape.images.sources.listing import Listing, image_set, one_by_one, skipped_lines

LAYOUTS = {
    "flat": ("b.png", "a.JPG", "a 1.webp", ".hidden.png", "notes.txt"),
    "classes": ("dog/2.png", "dog/10.png", "cat/x.jpeg", "cat/.x.png", "empty/readme.md", ".git/a.png"),
    "deep": ("dog/z.png", "dog/a/1.png", "dog/b/c/2.png", "cat/9.png", "cat-2/1.png"),
    "mixed": ("z.png", "in/a.png", "in/deep/b.gif"),
}


def fill(root: Path, files: tuple[str, ...]) -> Path:
    """Files of known sizes and times."""
    for number, file in enumerate(files):
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (number + 1))
        os.utime(path, ns=(0, 1_600_000_000_000_000_000 + number))
    return root


ENDS = (".png", ".JPG", "webp", "jpeg", ".gif")
AWKWARD = ("a/x.png", "a/deep/y.png", "a b/1.png", "a-2/1.png", "a/b/1.png", "a/b-2/1.png", "a/b/c/1.png", "B/1.png")


@pytest.mark.parametrize("files", [*LAYOUTS.values(), AWKWARD, (*AWKWARD, "(old)/1.png", "loose.png")])
def test_a_folder_has_one_order_however_it_is_given(files: tuple[str, ...], tmp_path: Path) -> None:
    fill(tmp_path, files)
    listed = [path for path, _ in one_by_one(tmp_path).pairs()]
    folder = ImageFolder(tmp_path)
    assert listed == image_set(tmp_path).files == [str(tmp_path / file) for file in folder.names]
    assert len(listed) == len(set(listed)) == sum(1 for file in files if "/." not in f"/{file}" and file[-4:] in ENDS)


def test_a_link_back_is_not_followed(tmp_path: Path) -> None:
    fill(tmp_path, ("cat/1.png", "dog/2.png", "dog/deep/3.png"))
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "dog" / "up").symlink_to("..")
    (tmp_path / "dog" / "deep" / "dog").symlink_to("../../dog")
    (tmp_path / "nowhere").symlink_to("nowhere")
    folder = ImageFolder(tmp_path)
    assert folder.names == ["cat/1.png", "dog/2.png", "dog/deep/3.png"]
    assert folder.classes == ("cat", "dog")
    assert folder.labels.tolist() == [0, 1, 1]
    assert len(list(one_by_one(tmp_path).pairs())) == 3


def test_a_link_to_another_folder_is_followed(tmp_path: Path) -> None:
    fill(tmp_path, ("root/cat/1.png", "elsewhere/2.png"))
    (tmp_path / "root" / "dog").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "root" / "other").symlink_to(tmp_path / "elsewhere")
    folder = ImageFolder(tmp_path / "root")
    assert folder.names == ["cat/1.png", "dog/2.png", "other/2.png"]
    np.testing.assert_array_equal(folder.labels, [0, 1, 2])


GLOBS = (
    "**/*.png",
    "images/**/*.png",
    "images/**",
    "**",
    "*/**/deep/**/*.png",
    "images/**/a*/*",
    "images/*/*.png",
    "**/**/x*",
)


@pytest.mark.parametrize("pattern", GLOBS)
@pytest.mark.parametrize("files", [*LAYOUTS.values(), AWKWARD])
def test_globs_match_what_pythons_do(
    pattern: str, files: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    fill(Path("images"), files)
    wanted = sorted({path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)})
    for given, found in ((pattern, wanted), (str(tmp_path / pattern), [str(tmp_path / path) for path in wanted])):
        if wanted:
            assert [path for path, _ in Listing(given).pairs()] == found
        else:
            with pytest.raises(InputError, match="no file matches"):
                list(Listing(given).pairs())


def test_a_glob_follows_links_but_not_in_circles(tmp_path: Path) -> None:
    """Three links back in each of three folders are more than 10^18 paths to Python's own `**`."""
    for name in "abc":
        fill(tmp_path / "images" / name, ("1.png",))
        for other in ("..", "../../images", "../../images/."):
            (tmp_path / "images" / name / f"up{len(other)}").symlink_to(other)
    (tmp_path / "elsewhere").mkdir()
    fill(tmp_path / "elsewhere", ("2.png",))
    (tmp_path / "images" / "linked").symlink_to(tmp_path / "elsewhere")
    found = [
        os.path.relpath(path, tmp_path / "images") for path, _ in Listing(str(tmp_path / "images/**/*.png")).pairs()
    ]
    assert found == ["a/1.png", "b/1.png", "c/1.png", "linked/2.png"]


def test_images_are_found_by_content_and_other_files_are_counted(tmp_path: Path) -> None:
    picture = PIL.Image.fromarray(np.zeros((4, 4, 3), np.uint8))
    for name, form in {
        "photo": "PNG",
        "scan.dat": "JPEG",
        "a.avif": "AVIF",
        "b.jp2": "JPEG2000",
        "icon.ico": "ICO",
    }.items():
        picture.save(tmp_path / name, form)
    for name in ("notes.txt", "more.TXT", "noise", "broken.png"):
        (tmp_path / name).write_bytes(b"no image")
    assert ImageFolder(tmp_path).names == ["a.avif", "b.jp2", "broken.png", "photo", "scan.dat"]
    assert skipped_lines(one_by_one(tmp_path)) == [
        f"4 files of {tmp_path} are no image: 2 .txt, 1 .ico, 1 without extension"
    ]
    (tmp_path / "only").mkdir()
    picture.save(tmp_path / "only" / "a.png")
    assert skipped_lines(tmp_path / "only") == []
