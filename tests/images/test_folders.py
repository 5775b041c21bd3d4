"""Image folders, lists and globs: every file once, in a fixed order, upright and in RGB; what is wrong has a name."""

from __future__ import annotations

import glob
import io
import os
import pickle
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
from PIL import Image, ImageOps

from folders_of_digits import write_odd_files
from oodshape.core.errors import InputError
from oodshape.images.decode.read import open_image, to_mode
from oodshape.images.sources.image_files import ImageFolder, ImageList, match_glob
from oodshape.images.sources.image_set import ImageSet
from oodshape.images.sources.open_images import ImageSource, describe_skipped, open_images, stream_images


def picture(seed: int = 0, size: tuple[int, int] = (6, 4)) -> Image.Image:
    """A random picture, width x height."""
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3)).astype(np.uint8))


def fill(root: Path, *names: str) -> Path:
    for seed, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        picture(seed).save(root / name)
    return root


def test_class_folders_are_labelled_by_their_sorted_names(tmp_path: Path) -> None:
    fill(tmp_path, "dog/b.png", "dog/a.JPG", "cat/z.webp", "ant/deep/er/1.bmp", "ant/2.tif", "ant/3.tiff", "cat/4.ppm")
    (tmp_path / "bee").mkdir()  # empty, but a class: the labels must be those of a fuller split
    (tmp_path / "dog" / "notes.txt").write_text("no image")
    fill(tmp_path, ".hidden/a.png", "cat/._z.webp.png")
    images = ImageFolder(tmp_path)
    assert images.classes == ("ant", "bee", "cat", "dog")
    assert list(images.names) == [
        "ant/2.tif",
        "ant/3.tiff",
        "ant/deep/er/1.bmp",
        "cat/4.ppm",
        "cat/z.webp",
        "dog/a.JPG",
        "dog/b.png",
    ]
    assert images.labels.tolist() == [0, 0, 0, 2, 2, 3, 3]
    assert images.labels.dtype == np.int64
    assert len(images) == 7
    assert images.name == tmp_path.name
    np.testing.assert_array_equal(np.asarray(images[6]), np.asarray(picture(0)))
    again: ImageSet = pickle.loads(pickle.dumps(images))  # as a spawned worker gets it
    assert again.fingerprint == images.fingerprint


def test_the_order_is_torchvisions(tmp_path: Path, torchvision_ops: object) -> None:
    datasets = pytest.importorskip("torchvision.datasets")
    names = ["a/x.png", "a b/y.png", "a/b/1.png", "a/b c/2.png", "a/10.png", "a/9.png", "B/q.png", "a/b.png"]
    fill(tmp_path, *names)
    theirs = datasets.ImageFolder(tmp_path)
    ours = ImageFolder(tmp_path)
    assert [ours.path(i) for i in range(len(ours))] == [path for path, _ in theirs.samples]
    assert ours.labels.tolist() == theirs.targets
    assert list(ours.classes) == theirs.classes


def test_missing_and_empty_folders_say_what_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"there is no folder .*nowhere"):
        ImageFolder(tmp_path / "nowhere")
    (tmp_path / "cats").mkdir()
    (tmp_path / "cats" / "a.svg").touch()
    with pytest.raises(InputError, match=r"no image lies in .* or its subfolders; looked for \.jpg \.jpeg"):
        ImageFolder(tmp_path)


# Lists.


def test_lists_with_and_without_labels(tmp_path: Path) -> None:
    fill(tmp_path, "in/a.png", "in/two words 7.png", "in/ä.png")
    listed = tmp_path / "test.txt"
    listed.write_text("in/two words 7.png 3\r\n\n in/a.png\nin/ä.png\t-1\nin/two words 7.png  \n", encoding="utf-8-sig")
    images = ImageList(listed)
    assert list(images.names) == ["in/two words 7.png", "in/a.png", "in/ä.png", "in/two words 7.png"]
    assert images.labels.tolist() == [3, -1, -1, -1]
    assert images.name == "test"
    np.testing.assert_array_equal(np.asarray(images[1]), np.asarray(picture(0)))


def test_a_list_may_lie_elsewhere(tmp_path: Path) -> None:
    fill(tmp_path / "data", "a.png", "b.png")
    listed = tmp_path / "lists" / "set.txt"
    listed.parent.mkdir()
    listed.write_text(f"a.png 0\n{tmp_path}/data/b.png 1\n")
    images = ImageList(listed, root=tmp_path / "data")
    assert [images.path(0), images.path(1)] == [str(tmp_path / "data/a.png"), str(tmp_path / "data/b.png")]
    with pytest.raises(InputError, match=r"1 of the 2 files in .*set\.txt do not lie in .*lists: a\.png; root="):
        ImageList(listed)


def test_csv_lists(tmp_path: Path) -> None:
    fill(tmp_path, "a, b.png", "c 1.png")
    listed = tmp_path / "set.csv"
    listed.write_text('label,path,note\n2,"a, b.png",x\n,c 1.png,y\n')
    images = ImageList(listed)
    assert list(images.names) == ["a, b.png", "c 1.png"]
    assert images.labels.tolist() == [2, -1]
    listed.write_text("path\nc 1.png\n")
    assert ImageList(listed).labels.tolist() == [-1]
    listed.write_text("path,label\nc 1.png,cat\n")
    with pytest.raises(InputError, match=r"set\.csv, line 2: the label must be a whole number, got 'cat'"):
        ImageList(listed)
    listed.write_text("c 1.png,3\n")
    with pytest.raises(InputError, match=r"needs the header path,label \(or path\), but starts 'c 1\.png,3'"):
        ImageList(listed)


def test_bad_lists_are_refused(tmp_path: Path) -> None:
    listed = tmp_path / "set.txt"
    with pytest.raises(InputError, match=r"set\.txt cannot be read .No such file"):
        ImageList(listed)
    listed.write_text("\n \n")
    with pytest.raises(InputError, match=r"set\.txt is empty; it needs one path per line"):
        ImageList(listed)
    listed.write_text("".join(f"{i}.png {i}\n" for i in range(9)))
    with pytest.raises(InputError, match=r"9 of the 9 files .*: 0\.png, 1\.png, 2\.png, 3\.png, 4\.png \.\.\.; root"):
        ImageList(listed)


# Fingerprints.


def test_the_fingerprint_follows_the_files(tmp_path: Path) -> None:
    fill(tmp_path, "a/1.png", "b/2.png")
    images = ImageFolder(tmp_path)
    seen = [images.fingerprint]
    assert ImageFolder(tmp_path).fingerprint == seen[0]
    moved = tmp_path.rename(tmp_path.with_name("elsewhere"))
    assert ImageFolder(moved).fingerprint == seen[0]
    moved.rename(tmp_path)
    status = (tmp_path / "a/1.png").stat()
    os.utime(tmp_path / "a/1.png", ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    seen.append(images.fingerprint)  # of the same object: nothing is remembered
    old, path = (tmp_path / "b/2.png").stat(), tmp_path / "b/2.png"
    path.write_bytes(bytes(reversed(path.read_bytes())))  # of equal size, with its time put back
    os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
    seen.append(images.fingerprint)
    (tmp_path / "a/1.png").write_bytes(b"")
    seen.append(images.fingerprint)
    fill(tmp_path, "b/3.png")
    seen.append(ImageFolder(tmp_path).fingerprint)
    (tmp_path / "a/1.png").rename(tmp_path / "a/0.png")
    seen.append(ImageFolder(tmp_path).fingerprint)
    (tmp_path / "list.txt").write_text("a/0.png 0\nb/3.png 1\n")
    seen.append(ImageList(tmp_path / "list.txt").fingerprint)
    (tmp_path / "list.txt").write_text("a/0.png 0\nb/3.png 2\n")
    seen += [ImageList(tmp_path / "list.txt").fingerprint, images.fingerprint]  # of a set whose a/1.png has gone
    assert len(set(seen)) == len(seen)


# What is in a file.


def read(tmp_path: Path, image: Image.Image, suffix: str = "png", **settings: Any) -> np.ndarray:
    image.save(tmp_path / f"x.{suffix}", **settings)
    out = ImageFolder(tmp_path)[0]
    assert out.mode == "RGB"
    return np.asarray(out)


def test_pixels_without_a_range_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"x\.tif cannot be read as an image \(its 32-bit pixels \(mode F\) have no"):
        read(tmp_path, Image.fromarray(np.zeros((2, 2), np.float32)), "tif")
    with pytest.raises(InputError, match=r"mode I\) have no fixed range"):
        to_mode(Image.fromarray(np.zeros((2, 2), np.int32)), "L")


def test_a_broken_exif_block_does_not_matter(tmp_path: Path) -> None:
    out = read(tmp_path, picture(), "jpg", exif=b"Exif\0\0II*\0\x08\0\0\0\x05\0\x12\x01\x03\0")
    assert out.shape == (4, 6, 3)


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


def test_lists_globs_files_and_sequences(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "list.txt").write_text("b/2.png 1\n\na/x.png\nmissing one.png\n")
    listing = stream_images(tree / "list.txt")
    assert list(listing.pairs()) == [("b/2.png", 0), ("a/x.png", 1), ("missing one.png", 2)]
    assert open_images(listing).labels.tolist() == [1, -1, -1]
    assert open_images(listing)[0].size == (3, 2)
    with pytest.raises(InputError, match="missing one"):
        open_images(listing)[2]
    (tree / "list.csv").write_text("label,path\n3,b/2.png\n,a/x.png\n")
    assert open_images(tree / "list.csv").labels.tolist() == [3, -1]
    assert below(tree, stream_images(f"{tree}/**/*.png")) == ["a/x.png", "b/2.png"]
    assert below(tree, stream_images(tree / "a" / "x.png")) == ["a/x.png"]
    assert list(stream_images(["p", Path("q")]).pairs()) == [("p", 0), ("q", 1)]
    monkeypatch.setattr("sys.stdin", io.StringIO("one 1.png\n\ntwo.png\n"))
    assert list(stream_images("-").pairs()) == [("one 1.png", -1), ("two.png", -1)]
    assert stream_images("-").count() is None


def test_odd_files_are_read_as_a_training_loader_reads_them(tmp_path: Path) -> None:
    for name, error in write_odd_files(tmp_path).items():
        if error:
            with pytest.raises(InputError, match=error):
                open_image(tmp_path / name, upright=False)
        elif "sixteen" in name:
            # the usual loader makes them white; the high byte is what the picture shows
            wanted = np.asarray(Image.open(tmp_path / name)) >> 8
            assert np.array_equal(np.asarray(open_image(tmp_path / name))[:, :, 0], wanted)
        else:
            with Image.open(tmp_path / name) as image:
                wanted = np.asarray(image.convert("RGBA" if image.mode == "P" else "RGB").convert("RGB"))
                upright = np.asarray(ImageOps.exif_transpose(image).convert("RGB"))
            assert np.array_equal(np.asarray(open_image(tmp_path / name, upright=False)), wanted), name
            if name == "turned.jpg":
                assert upright.shape == (24, 20, 3)
                assert np.array_equal(np.asarray(open_image(tmp_path / name)), upright)


LAYOUTS = {
    "flat": ("b.png", "a.JPG", "a 1.webp", ".hidden.png", "notes.txt"),
    "classes": ("dog/2.png", "dog/10.png", "cat/x.jpeg", "cat/.x.png", "empty/readme.md", ".git/a.png"),
    "deep": ("dog/z.png", "dog/a/1.png", "dog/b/c/2.png", "cat/9.png", "cat-2/1.png"),
    "mixed": ("z.png", "in/a.png", "in/deep/b.gif"),
}


def touch(root: Path, files: tuple[str, ...]) -> Path:
    """Files of known sizes and times."""
    for number, file in enumerate(files):
        path = root / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * (number + 1))
        os.utime(path, ns=(0, 1_600_000_000_000_000_000 + number))
    return root


AWKWARD = ("a/x.png", "a/deep/y.png", "a b/1.png", "a-2/1.png", "a/b/1.png", "a/b-2/1.png", "a/b/c/1.png", "B/1.png")


def test_an_image_that_links_to_itself_is_unreadable(tmp_path: Path) -> None:
    touch(tmp_path, ("1.png",))
    (tmp_path / "2.png").symlink_to("2.png")
    assert list(ImageFolder(tmp_path).names) == ["1.png", "2.png"]
    with pytest.raises(InputError, match="there is no file or folder"):
        stream_images(tmp_path / "2.png").pairs()


def test_a_link_back_is_not_followed(tmp_path: Path) -> None:
    touch(tmp_path, ("cat/1.png", "dog/2.png", "dog/deep/3.png"))
    (tmp_path / "self").symlink_to(tmp_path)
    (tmp_path / "dog" / "up").symlink_to("..")
    (tmp_path / "dog" / "deep" / "dog").symlink_to("../../dog")
    (tmp_path / "nowhere").symlink_to("nowhere")
    folder = ImageFolder(tmp_path)
    assert list(folder.names) == ["cat/1.png", "dog/2.png", "dog/deep/3.png"]
    assert folder.classes == ("cat", "dog")
    assert folder.labels.tolist() == [0, 1, 1]
    assert len(list(stream_images(tmp_path).pairs())) == 3


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
    touch(Path("images"), files)
    wanted = sorted({path for path in glob.glob(pattern, recursive=True) if os.path.isfile(path)})
    for given, found in ((pattern, wanted), (str(tmp_path / pattern), [str(tmp_path / path) for path in wanted])):
        if wanted:
            assert match_glob(given) == found
        else:
            with pytest.raises(InputError, match="no file matches"):
                match_glob(given)


def test_a_glob_follows_links_but_not_in_circles(tmp_path: Path) -> None:
    """Three links back in each of three folders are more than 10^18 paths to Python's own `**`."""
    for name in "abc":
        touch(tmp_path / "images" / name, ("1.png",))
        for other in ("..", "../../images", "../../images/."):
            (tmp_path / "images" / name / f"up{len(other)}").symlink_to(other)
    (tmp_path / "elsewhere").mkdir()
    touch(tmp_path / "elsewhere", ("2.png",))
    (tmp_path / "images" / "linked").symlink_to(tmp_path / "elsewhere")
    found = match_glob(str(tmp_path / "images/**/*.png"))
    with tarfile.open(tmp_path / "images" / "b" / "some.tar", "w") as tar:
        tar.add(tmp_path / "elsewhere" / "2.png")
    assert open_images(f"{tmp_path}/images/**/*.tar").files == [str(tmp_path / "images" / "b" / "some.tar")]
    assert [os.path.relpath(path, tmp_path / "images") for path in found] == [
        "a/1.png",
        "b/1.png",
        "c/1.png",
        "linked/2.png",
    ]


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
    assert list(ImageFolder(tmp_path).names) == ["a.avif", "b.jp2", "broken.png", "photo", "scan.dat"]
    assert describe_skipped(stream_images(tmp_path)) == [
        f"4 files of {tmp_path} are no image: 2 .txt, 1 .ico, 1 without extension"
    ]
    (tmp_path / "only").mkdir()
    picture.save(tmp_path / "only" / "a.png")
    assert describe_skipped(tmp_path / "only") == []
