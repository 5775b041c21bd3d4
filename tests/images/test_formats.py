"""The image formats that are read, and those that are not, whatever a file is called."""

from __future__ import annotations

import ast
import io
import struct
import sys
from pathlib import Path

import PIL.Image
import pytest

import oodshape
from oodshape.images.decode import formats
from oodshape.images.decode.formats import EXTENSIONS, open_format
from oodshape.images.decode.read import Unreadable, open_image, read_image
from oodshape.images.sources.listing import image_set

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
    assert read_image(tmp_path / "image.bin").size == (16, 16)
    with open_format(tmp_path / "image.bin") as image:
        assert image.format == format


def test_heif_is_read_with_the_extra_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    heif = pytest.importorskip("pillow_heif", reason="needs the extra heif")
    heif.from_pillow(PICTURE.resize((64, 64))).save(tmp_path / "photo.heic")
    formats._formats.cache_clear()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(Unreadable, match=r"photo.heic is not a readable image: HEIF needs the extra, pip install 'o"):
        read_image(tmp_path / "photo.heic")
    monkeypatch.undo()
    formats._formats.cache_clear()
    assert read_image(tmp_path / "photo.heic").size == (64, 64)


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
        for read in (read_image, open_image):
            with pytest.raises(Unreadable, match="is not a readable image; remove or replace the file$") as caught:
                read(file)
            assert "\n" not in str(caught.value)


def test_pillow_opens_files_in_one_place() -> None:
    """Whatever opens an image goes through `open_format`: no other call of PIL.Image.open, however it is imported."""
    root = Path(oodshape.__file__).parent
    found = []
    for path in root.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            opens = isinstance(node, ast.Attribute) and node.attr == "open" and ast.unparse(node).endswith("Image.open")
            imports = isinstance(node, ast.ImportFrom) and node.module == "PIL.Image" and "open" in ast.unparse(node)
            if opens or imports:
                found.append(path.relative_to(root).as_posix())
    assert found == ["images/decode/formats.py"]


def test_folders_list_files_of_every_format(tmp_path: Path) -> None:
    for end in (*EXTENSIONS, ".ico", ".eps", ".txt"):
        (tmp_path / f"a{end}").write_bytes(b"")
    assert len(image_set(str(tmp_path))) == len(EXTENSIONS)
