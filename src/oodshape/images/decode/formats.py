"""The image formats that are read: the only place where Pillow opens a file.

Pillow can read many more. Some of them decode while the header is read (ICO, ICNS), before the size can be checked, and
some call other programs (PostScript, also inside IPTC); so each file is opened as one of these formats or not at all.
"""

from __future__ import annotations

import os
import re
from contextlib import nullcontext
from functools import cache
from io import BytesIO
from pathlib import Path
from typing import IO

import PIL.Image

from oodshape.core.errors import InputError
from oodshape.images.decode.limits import Limits

# Pillow's names, and how files of the format end. Several JPEGs in one file (MPO, from cameras) open as JPEG.
FORMATS = {
    "JPEG": (".jpg", ".jpeg", ".mpo"),
    "PNG": (".png",),
    "WEBP": (".webp",),
    "TIFF": (".tif", ".tiff"),
    "BMP": (".bmp",),
    "GIF": (".gif",),
    "PPM": (".ppm", ".pgm", ".pbm"),
    "AVIF": (".avif",),
    "JPEG2000": (".jp2", ".j2k"),
}
HEIF = {"HEIF": (".heic", ".heif")}  # with the extra `heif`
MAX_SCANS = 100  # of a JPEG; encoders write about 10, and each costs a pass over the whole image
MAX_SEGMENTS = 600  # of a JPEG; for each EXIF segment Pillow copies all those before it
MAX_BLOCKS = 100_000  # of a PNG; Pillow keeps a record of each one
MAX_READS = 100_000  # of a GIF; Pillow looks for the first image byte by byte
MAX_COMMENTS = 100  # in a PNM file of text; for each one Pillow copies what it has read
# The numbers in the header of a PNM file, by its first two bytes; Pillow looks for them byte by byte
PNM = {b"P1": 2, b"P4": 2} | dict.fromkeys((b"P2", b"P3", b"P5", b"P6", b"Pf"), 3) | {b"P0": 4, b"Py": 4}
MAX_PNM_HEADER = 1 << 16  # bytes
MARKER = re.compile(rb"\xff([^\x00\x01\xd0-\xd8\xff])")  # of a JPEG, except those that have no data
SCAN, END = b"\xda", b"\xd9"
EXTENSIONS = tuple(end for ends in (FORMATS | HEIF).values() for end in ends)


def open_format(file: str | Path | IO[bytes]) -> PIL.Image.Image:
    """Open an image file of one of the formats; nothing is decoded yet.

    Raises:
        PIL.UnidentifiedImageError: The file has another format, or is no image.
        InputError: Pillow would need far more time for it than for others of its size.
    """
    with open(file, "rb") if isinstance(file, (str, Path)) else nullcontext(file) as stream:
        start = stream.read(2)
        if start in PNM:
            words = re.sub(rb"#[^\r\n]*", b"", stream.read(MAX_PNM_HEADER)).split()
            if len(words) < PNM[start]:
                raise InputError(f"a PNM file without a header in its first {MAX_PNM_HEADER:,} bytes")
            stream.seek(2)
        if start in (b"\xff\xd8", b"P1", b"P2", b"P3"):
            _check_cost(stream.read(Limits.now().inflated + 1), is_jpeg=start == b"\xff\xd8")
        elif start == b"\x89P":
            _check_blocks(stream)
        stream.seek(0)
        if start == b"GI":
            return PIL.Image.open(_FewReads(stream.read(Limits.now().inflated)), formats=_formats())
    return PIL.Image.open(file, formats=_formats())


def _check_cost(data: bytes, *, is_jpeg: bool) -> None:
    if len(data) > Limits.now().inflated:
        raise InputError(f"a file of more than {Limits.now().inflated:,} bytes, the limit `inflated`")
    if not is_jpeg:
        if data.count(b"#") > MAX_COMMENTS:
            raise InputError(f"a PNM file of more than {MAX_COMMENTS} comments")
        return
    at, scans, segments = 0, 0, 0
    while (marker := MARKER.search(data, at)) and marker[1] != END:
        scans, segments = scans + (marker[1] == SCAN), segments + (marker[1] != SCAN)
        if scans > MAX_SCANS or segments > MAX_SEGMENTS:
            raise InputError(f"a JPEG of more than {MAX_SCANS} scans or {MAX_SEGMENTS} other segments")
        at = marker.end() + int.from_bytes(data[marker.end() : marker.end() + 2], "big")


def _check_blocks(png: IO[bytes]) -> None:
    png.seek(8)
    for _ in range(MAX_BLOCKS):
        head = png.read(8)
        if len(head) < 8 or head[4:] == b"IEND":
            return
        png.seek(int.from_bytes(head[:4], "big") + 4, os.SEEK_CUR)
    raise InputError(f"a PNG of more than {MAX_BLOCKS:,} blocks")


class _FewReads(BytesIO):
    """A file that may be read so many times."""

    reads = 0

    def read(self, size: int | None = -1) -> bytes:
        self.reads += 1
        if self.reads > MAX_READS:
            raise InputError(f"a GIF of more than {MAX_READS:,} blocks")
        return super().read(size)


def explain_refusal(file: object) -> str:
    """Why a file that has none of the formats is refused.

    >>> explain_refusal("notes.txt")
    'is not a readable image'
    """
    if str(file).lower().endswith(HEIF["HEIF"]) and "HEIF" not in _formats():
        return "is not a readable image: HEIF needs the extra, pip install 'oodshape[heif]'"
    return "is not a readable image"


@cache
def _formats() -> tuple[str, ...]:
    """The formats that can be read here: HEIF where pillow-heif is installed."""
    try:
        from pillow_heif import register_heif_opener
    except ModuleNotFoundError:
        return tuple(FORMATS)
    register_heif_opener()
    return (*FORMATS, *HEIF)
