"""Image files as pictures of 8 bits: in colour or gray, upright or as stored; large ones in strips."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Literal, cast

import numpy as np
import PIL.ExifTags
import PIL.Image
import PIL.ImageOps

from oodshape.core.errors import InputError
from oodshape.images.decode.formats import explain_refusal, open_format
from oodshape.images.decode.limits import PLAIN, TURNS, Limits
from oodshape.images.sources.storage import as_decodable

ImageFile = str | Path | BytesIO
Mode = Literal["RGB", "L"]  # colour or gray, 8 bits
LARGE = 1 << 24  # pixels; two copies of fewer are 128 MB
DECODERS = {"WEBP": 16, "AVIF": 10, "JPEG2000": 20, "HEIF": 16}  # bytes a pixel; others take PLAIN
# An EXIF block that cannot be read says nothing about the pixels. Kept for good, and not for the length of a read:
# filters belong to the whole process, and a thread that puts back what it found undoes what others did meanwhile.
_QUIET = ("ignore", None, Warning, re.compile(r"PIL\.TiffImagePlugin"), 0)
TWELVE_BITS = 1 << 12
STRIP = 1 << 20  # pixels that are copied at a time
Turn = PIL.Image.Transpose
ORIENTATIONS = {
    2: Turn.FLIP_LEFT_RIGHT,
    3: Turn.ROTATE_180,
    4: Turn.FLIP_TOP_BOTTOM,
    5: Turn.TRANSPOSE,
    6: Turn.ROTATE_270,
    7: Turn.TRANSVERSE,
    8: Turn.ROTATE_90,
}  # by EXIF orientation
SIDEWAYS = (Turn.TRANSPOSE, Turn.TRANSVERSE, Turn.ROTATE_90, Turn.ROTATE_270)
# turns after which the first rows come from the stored picture's last rows or columns
FROM_THE_END = (Turn.FLIP_TOP_BOTTOM, Turn.ROTATE_180, Turn.ROTATE_90, Turn.TRANSVERSE)


class Unreadable(InputError):
    """A file is not an image, or it is damaged."""

    def __init__(self, path: object, reason: str) -> None:
        """Name the file, the problem and the fix."""
        super().__init__(f"{path} {reason}; remove or replace the file")
        self.reason = reason


def open_image(path: ImageFile, *, upright: bool = True) -> PIL.Image.Image | LargePicture:
    """Open the picture in a file, the first of several: RGB, 8 bits, turned upright as its EXIF orientation says.

    upright=False leaves it as the camera held it, as the loaders of torchvision and timm do. An image over the
    `Limits` is not decoded; a large one is kept as it is stored, for whatever resizes it next.

    Raises:
        Unreadable: Any problem with the file.
    """
    if _QUIET not in warnings.filters:
        warnings.filterwarnings("ignore", module=_QUIET[3].pattern)
    try:
        with open_format(as_decodable(path) if isinstance(path, str) else path) as image:
            _check(path, image)
            image.load()
            _warn_if_dark(image)
            if image.width * image.height > LARGE:
                return _as_stored(image, upright=upright)
            if upright:
                PIL.ImageOps.exif_transpose(image, in_place=True)
            return to_mode(image, "RGB")
    except Unreadable:
        raise
    except PIL.UnidentifiedImageError:
        raise Unreadable(path, explain_refusal(path)) from None
    except Exception as error:  # a broken file can raise almost anything: OSError, SyntaxError, struct.error ...
        raise Unreadable(path, f"cannot be read as an image ({error})") from None


def _warn_if_dark(image: PIL.Image.Image) -> None:
    """Warn of 12-bit data in 16 bits, as many cameras and scanners write them: 16 bits are scaled by their range."""
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        highest = cast(tuple[float, float], image.getextrema())[1]
        if 0 < highest < TWELVE_BITS:
            warnings.warn(
                f"an image of 16 bits has no value above {highest:g} of 65,535 and is read almost black; if it holds "
                "data of 12 bits or fewer, scale them to 16 bits first",
                stacklevel=2,
            )


def _check(path: ImageFile, image: PIL.Image.Image) -> None:
    """Refuse what would cost too much, as known from the file's first bytes; wait where others decode."""
    cost = _decoder_cost(image)
    too_large = Limits.now().refusal(*image.size, image.format or "it", cost)
    if too_large:
        raise Unreadable(path, too_large)
    # next to what the decoder takes, smaller pictures are copied whole
    TURNS.wait(image.width * image.height * max(cost, 4 if image.mode == "RGB" else 8))


def _decoder_cost(image: PIL.Image.Image) -> int:
    """Bytes of memory for each pixel while a file is decoded: measured at 50 million pixels, rounded up."""
    if image.format in ("JPEG", "MPO") and image.info.get("progressive"):
        return 10  # all coefficients wait for the last scan
    if image.format == "TIFF" and image.info.get("compression", "raw") != "raw":
        tags = getattr(image, "tag_v2", {})
        rows = float(tags.get(278) or tags.get(323) or image.height)  # of a strip or a tile, which is inflated at once
        return PLAIN + math.ceil(PLAIN * min(rows / image.height, 1.0))
    return DECODERS.get(image.format or "", PLAIN)


def to_mode(image: PIL.Image.Image, mode: Mode) -> PIL.Image.Image:
    """The picture in colour (RGB) or gray (L), 8 bits: 16 bits are scaled, alpha is dropped as in training.

    >>> to_mode(PIL.Image.fromarray(np.array([[0, 32768, 65535]], np.uint16)), "L").tobytes().hex(" ")
    '00 80 ff'
    """
    if image.mode == mode:
        return image
    # Pillow before 11 opens 16-bit PNG and PGM files as "I".
    if image.mode.startswith("I;16") or (image.mode == "I" and image.format in ("PNG", "PPM")):
        # The high byte, as Pillow does it for 16-bit colour; its own conversion of gray clips at 255.
        image = PIL.Image.fromarray((np.asarray(image) >> 8).astype(np.uint8))
    elif image.mode in ("I", "F"):
        raise InputError(f"its 32-bit pixels (mode {image.mode}) have no fixed range: save it with 8 or 16 bits")
    elif image.mode in ("P", "PA"):
        image = image.convert("RGBA")  # a palette may hold transparent colours
    return image.convert(mode)


def _as_stored(image: PIL.Image.Image, *, upright: bool) -> LargePicture:
    """A decoded picture as it is stored, and how it is turned."""
    to_mode(_cut(image, (0, 0, 1, 1)), "RGB")  # a kind that cannot be shown is refused with the file's name
    turn = ORIENTATIONS.get(image.getexif().get(PIL.ExifTags.Base.Orientation, 1)) if upright else None
    return LargePicture(image, turn)


@dataclass(frozen=True)
class LargePicture:
    """A decoded picture of so many pixels that it is not copied whole to turn it, change its mode and resize it.

    A file with alpha, a palette or an EXIF turn would take two or three times its pixels at once. Here only a band of
    one byte a pixel is made next to the decoded picture, a few rows at a time, and resized.
    """

    stored: PIL.Image.Image
    turn: Turn | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the turned picture."""
        width, height = self.stored.size
        return (height, width) if self.turn in SIDEWAYS else (width, height)

    def whole(self) -> PIL.Image.Image:
        """The picture in colour, as `open_image` gives a smaller one."""
        return self._pasted("RGB", lambda strip: strip)

    def resized(self, mode: Mode, size: tuple[int, int], how: PIL.Image.Resampling) -> PIL.Image.Image:
        """The picture in this size: the pixels that resizing all of it gives, since no band looks at another."""
        if mode == "L":
            return self._pasted("L", lambda strip: to_mode(strip, "L")).resize(size, how)
        bands = (self._pasted("L", lambda strip, band=band: strip.getchannel(band)) for band in "RGB")  # type: ignore[misc]
        return PIL.Image.merge("RGB", [band.resize(size, how) for band in bands])

    def _pasted(self, mode: Mode, part: Callable[[PIL.Image.Image], PIL.Image.Image]) -> PIL.Image.Image:
        """A picture of this kind, made of a part of every strip in colour."""
        made = PIL.Image.new(mode, self.size)
        for top, strip in self._strips():
            made.paste(part(to_mode(strip, "RGB")), (0, top))
        return made

    def _strips(self) -> Iterator[tuple[int, PIL.Image.Image]]:
        """(the first row, some rows) of the turned picture, of the kind that is stored."""
        width, height = self.size
        step = max(STRIP // width, 1)
        for top in range(0, height, step):
            bottom = min(top + step, height)
            first, last = (height - bottom, height - top) if self.turn in FROM_THE_END else (top, bottom)
            box = (first, 0, last, width) if self.turn in SIDEWAYS else (0, first, width, last)
            strip = _cut(self.stored, box)
            yield top, strip if self.turn is None else _of_format(strip.transpose(self.turn), self.stored)


def _cut(image: PIL.Image.Image, box: tuple[int, int, int, int]) -> PIL.Image.Image:
    return _of_format(image.crop(box), image)


def _of_format(image: PIL.Image.Image, source: PIL.Image.Image) -> PIL.Image.Image:
    """The image with the format of its source, which tells 16 bits from 32 in older Pillows."""
    image.format = source.format
    return image
