"""The image formats that are read: the only place where Pillow opens a file.

Pillow can read many more. Some of them decode while the header is read (ICO, ICNS), before the size can be checked, and
some call other programs (PostScript, also inside IPTC); so each file is opened as one of these formats or not at all.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import IO

import PIL.Image

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
EXTENSIONS = tuple(end for ends in (FORMATS | HEIF).values() for end in ends)


def open_format(file: str | Path | IO[bytes]) -> PIL.Image.Image:
    """Open an image file of one of the formats; nothing is decoded yet.

    Raises:
        PIL.UnidentifiedImageError: The file has another format, or is no image.
    """
    return PIL.Image.open(file, formats=_formats())


def refusal(file: object) -> str:
    """Why a file that has none of the formats is refused.

    >>> refusal("notes.txt")
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
