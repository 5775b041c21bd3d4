"""The image formats that are read and those that are not; large pictures in strips have the same pixels."""

from __future__ import annotations

import io
import struct
import sys
from contextlib import nullcontext
from itertools import product
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from oodshape.images.decode import formats
from oodshape.images.decode import read as decode
from oodshape.images.decode.formats import open_format
from oodshape.images.decode.limits import Limits
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.decode.read import LargePicture, Unreadable, open_image

PICTURE = PIL.Image.linear_gradient("L").resize((16, 16)).convert("RGB")
POSTSCRIPT = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 16 16\n%%EndComments\nshowpage\n%%EOF\n"


def encoded(format: str) -> bytes:
    file = io.BytesIO()
    more = {"save_all": True, "append_images": [PICTURE]} if format == "MPO" else {}
    PICTURE.save(file, format, **more)
    return file.getvalue()


def iptc(content: bytes) -> bytes:
    """A picture inside IPTC, which Pillow opens as whatever it is."""

    def field(record: int, number: int, data: bytes) -> bytes:
        return b"\x1c" + bytes([record, number]) + struct.pack(">H", len(data)) + data

    side = struct.pack(">H", 16)
    return (
        field(3, 60, b"\1\0") + field(3, 20, side) + field(3, 30, side) + field(3, 120, b"\5") + field(8, 10, content)
    )


@pytest.mark.parametrize("format", ["JPEG", "MPO", "PNG", "WEBP", "TIFF", "BMP", "GIF", "PPM", "AVIF", "JPEG2000"])
def test_each_format_is_read(format: str, tmp_path: Path) -> None:
    (tmp_path / "image.bin").write_bytes(encoded(format))
    assert open_image(tmp_path / "image.bin").size == (16, 16)
    with open_format(tmp_path / "image.bin") as image:
        assert image.format == format


def test_heif_is_read_with_the_extra_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heif = pytest.importorskip("pillow_heif", reason="needs the extra heif")
    heif.from_pillow(PICTURE.resize((64, 64))).save(tmp_path / "photo.heic")
    formats._formats.cache_clear()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(Unreadable, match=r"photo.heic is not a readable image: HEIF needs the extra, pip install 'o"):
        open_image(tmp_path / "photo.heic")
    monkeypatch.undo()
    formats._formats.cache_clear()
    assert open_image(tmp_path / "photo.heic").size == (64, 64)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("icon.ico", encoded("ICO")),
        ("icon.icns", encoded("ICNS")),
        ("page.eps", POSTSCRIPT),
        ("drawn.eps", encoded("EPS")),
        ("news.iim", iptc(encoded("PNG"))),
        ("news.iim", iptc(POSTSCRIPT)),
        ("game.tga", encoded("TGA")),
        ("scan.pcx", encoded("PCX")),
        ("layers.psd", b"8BPS\0\1" + bytes(6) + struct.pack(">HIIHH", 3, 16, 16, 8, 3) + bytes(800)),
    ],
)
@pytest.mark.parametrize("end", ["", ".jpg"])
def test_other_formats_are_refused_in_one_line(name: str, content: bytes, end: str, tmp_path: Path) -> None:
    path = tmp_path / f"{name}{end}"
    path.write_bytes(content)
    for file in (path, str(path), io.BytesIO(content)):
        with pytest.raises(Unreadable, match="is not a readable image; remove or replace the file$") as caught:
            open_image(file)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("highest", [4095, 4096])
def test_twelve_bits_in_sixteen_are_noticed(highest: int, tmp_path: Path) -> None:
    PIL.Image.fromarray(np.linspace(0, highest, 64).astype(np.uint16).reshape(8, 8)).save(tmp_path / "a.png")
    with pytest.warns(UserWarning, match="no value above 4095 of 65,535") if highest < 4096 else nullcontext():
        open_image(tmp_path / "a.png")


MODES = ("RGB", "RGBA", "L", "LA", "P", "1", "CMYK", "I;16")
SIZE = (97, 61)


@pytest.fixture
def small_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode, "LARGE", 100)
    monkeypatch.setattr(decode, "STRIP", 700)


def read_whole(path: Path, *, upright: bool = True) -> PIL.Image.Image:
    """The picture, read as a small one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(decode, "LARGE", 1 << 24)
        return open_image(path, upright=upright)  # type: ignore[return-value]


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


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("mode", MODES)
def test_every_kind_and_turn_gives_the_same_pixels(mode: str, tmp_path: Path) -> None:
    for orientation, upright in product(range(1, 9), (True, False)):
        path = written(tmp_path, mode, orientation)
        opened, wanted = open_image(path, upright=upright), read_whole(path, upright=upright)
        assert isinstance(opened, LargePicture)
        assert opened.size == wanted.size
        np.testing.assert_array_equal(np.asarray(opened.whole()), np.asarray(wanted))
        for channels in (1, 3):
            how = Preprocessing((0.5,) * channels, (0.5,) * channels, 16, 16)
            np.testing.assert_array_equal(how.pixels(opened), how.pixels(wanted))


@pytest.mark.usefixtures("small_is_large")
@pytest.mark.parametrize("resize", [None, 7, 61, 64, 200, (97, 61), (61, 97), (13, 300), (300, 13)])
def test_every_size_and_filter_gives_the_same_pixels(resize: int | tuple[int, int] | None, tmp_path: Path) -> None:
    path = written(tmp_path, "RGBA", 6)
    for filter_name, crop in product(("bilinear", "bicubic", "nearest"), (None, 50)):
        how = Preprocessing((0.5,) * 3, (0.5,) * 3, resize, crop, filter_name)  # type: ignore[arg-type]
        np.testing.assert_array_equal(how.pixels(open_image(path)), how.pixels(read_whole(path)))


@pytest.mark.usefixtures("small_is_large")
def test_a_decoder_that_takes_more_may_have_fewer_pixels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    picture = PIL.Image.new("RGB", (100, 80))
    kinds = {"a.webp": {}, "b.jp2": {}, "c.jpg": {"progressive": True}, "d.jpg": {}, "e.png": {}}
    for name, options in kinds.items():
        picture.save(tmp_path / name, **options)  # type: ignore[arg-type]
    picture.save(tmp_path / "f.tif", compression="tiff_deflate", tiffinfo={278: 80})
    picture.save(tmp_path / "g.tif", compression="tiff_deflate", tiffinfo={278: 8})
    monkeypatch.setattr(Limits, "_now", Limits(pixels=8000))
    said = {}
    for path in sorted(tmp_path.iterdir()):
        try:
            open_image(path)
        except Unreadable as error:
            said[path.name] = error.reason
    assert list(said) == ["a.webp", "b.jp2", "c.jpg", "f.tif"]
    assert said["a.webp"] == (
        "is 100 x 80 pixels, more than 2,500 (the limit of pixels for WEBP, whose decoder takes 16 bytes for each)"
    )


def repeated(mark: bytes, segment: bytes, count: int) -> bytes:
    """A JPEG with more segments before a marker, and bytes after its end that look like scans, as a video's may."""
    head, found, rest = encoded("JPEG").partition(mark)
    return head + segment * count + found + rest + b"\xff\xda" * 1000


@pytest.mark.parametrize(
    ("file", "error"),
    [
        (repeated(b"\xff\xda", b"", 0), ""),
        (repeated(b"\xff\xdb", b"\xff\xe1\x00\x0aExif\0\0ab", 500), ""),
        (repeated(b"\xff\xdb", b"\xff\xe1\x00\x0aExif\0\0ab", 601), "a JPEG of more than 100 scans or 600 other"),
        (repeated(b"\xff\xda", b"\xff\xda\x00\x08\x01\x01\x00\x00\x3f\x00", 101), "a JPEG of more than 100 scans"),
        (b"\x89PNG\r\n\x1a\n" + (bytes(4) + b"prIv" + bytes(4)) * 100_001, "a PNG of more than 100,000 blocks"),
        (b"GIF89a\1\0\1\0\0\0\0" + bytes(100_000), "a GIF of more than 100,000 blocks"),
        (b"P6" + b" " * 65_000 + b"1 1 255 abc", ""),
        (b"P6" + b" " * 70_000 + b"1 1 255 abc", "a PNM file without a header in its first 65,536 bytes"),
        (b"P2\n1 1\n255\n" + b"# c\n" * 99 + b"7\n", ""),
        (b"P2\n1 1\n255\n" + b"# c\n" * 101 + b"7\n", "a PNM file of more than 100 comments"),
    ],
)
def test_files_that_pillow_is_slow_on_are_not_opened(file: bytes, error: str, tmp_path: Path) -> None:
    """A JPEG of 60 MB in 12,000 EXIF segments took 9 minutes, a PNM file of 1.6 MB of comments 26 s."""
    (tmp_path / "image").write_bytes(file)
    for given in (io.BytesIO(file), tmp_path / "image", str(tmp_path / "image")):
        with pytest.raises(Unreadable, match=error) if error else nullcontext():
            open_image(given)


def test_a_file_of_a_slow_format_is_not_read_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Limits, "now", lambda: Limits(inflated=1000))
    with pytest.raises(Unreadable, match="more than 1,000 bytes, the limit `inflated`"):
        open_image(io.BytesIO(b"P2 1 1 255 7" + b" " * 1000))
