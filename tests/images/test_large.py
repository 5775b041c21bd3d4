"""Large pictures are prepared in strips: the same pixels as all at once, whatever their kind, turn and size."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from oodshape.images.decode import read as decode
from oodshape.images.decode.limits import Limits
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.decode.read import Large, Unreadable, open_image, read_image

MODES = ("RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "I;16")
SIZE = (97, 61)


@pytest.fixture(autouse=True)
def _small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "LARGE", 100)
    monkeypatch.setattr(decode, "STRIP", 700)


def written(folder: Path, mode: str, orientation: int) -> Path:
    """A file of random pixels of this kind, with an EXIF orientation."""
    rng = np.random.default_rng(orientation)
    if mode == "I;16":
        image = PIL.Image.fromarray(rng.integers(65536, size=SIZE[::-1], dtype=np.uint16))
    else:
        image = PIL.Image.fromarray(rng.integers(256, size=(*SIZE[::-1], 3), dtype=np.uint8)).convert(mode)
    exif = PIL.Image.Exif()
    exif[0x0112] = orientation
    path = folder / f"{mode.replace(';', '')}-{orientation}.{'tif' if mode == 'CMYK' else 'png'}"
    image.save(path, exif=exif)
    return path


@pytest.mark.parametrize("mode", MODES)
def test_every_kind_and_turn_gives_the_same_pixels(mode: str, tmp_path: Path) -> None:
    for orientation, upright in product(range(1, 9), (True, False)):
        path = written(tmp_path, mode, orientation)
        opened, wanted = open_image(path, upright=upright), read_image(path, upright=upright)
        assert isinstance(opened, Large)
        assert opened.size == wanted.size
        np.testing.assert_array_equal(np.asarray(opened.whole()), np.asarray(wanted))
        for channels in (1, 3):
            how = Preprocessing((0.5,) * channels, (0.5,) * channels, 16, 16)
            np.testing.assert_array_equal(how.pixels(opened), how.pixels(wanted))


@pytest.mark.parametrize("resize", [None, 7, 61, 64, 200, (97, 61), (61, 97), (13, 300), (300, 13)])
def test_every_size_and_filter_gives_the_same_pixels(resize: int | tuple[int, int] | None, tmp_path: Path) -> None:
    path = written(tmp_path, "RGBA", 6)
    for filter_name, crop in product(("bilinear", "bicubic", "nearest"), (None, 50)):
        how = Preprocessing((0.5,) * 3, (0.5,) * 3, resize, crop, filter_name)  # type: ignore[arg-type]
        np.testing.assert_array_equal(how.pixels(open_image(path)), how.pixels(read_image(path)))


def test_a_kind_without_a_range_is_refused_with_the_files_name(tmp_path: Path) -> None:
    PIL.Image.fromarray(np.zeros((20, 20), np.float32)).save(tmp_path / "f.tif")
    with pytest.raises(Unreadable, match=r"f\.tif .*its 32-bit pixels \(mode F\) have no fixed range"):
        open_image(tmp_path / "f.tif")


def test_a_decoder_that_takes_more_may_have_fewer_pixels(tmp_path: Path) -> None:
    picture = PIL.Image.new("RGB", (100, 80))
    kinds = {"a.webp": {}, "b.jp2": {}, "c.jpg": {"progressive": True}, "d.jpg": {}, "e.png": {}}
    for name, options in kinds.items():
        picture.save(tmp_path / name, **options)  # type: ignore[arg-type]
    picture.save(tmp_path / "f.tif", compression="tiff_deflate", tiffinfo={278: 80})
    picture.save(tmp_path / "g.tif", compression="tiff_deflate", tiffinfo={278: 8})
    usual = Limits(pixels=8000).use()
    said = {}
    try:
        for path in sorted(tmp_path.iterdir()):
            try:
                open_image(path)
            except Unreadable as error:
                said[path.name] = error.reason
    finally:
        usual.use()
    assert list(said) == ["a.webp", "b.jp2", "c.jpg", "f.tif"]
    assert said["a.webp"] == (
        "is 100 x 80 pixels, more than 2,500 (the limit of pixels for WEBP, whose decoder takes 16 bytes for each)"
    )
