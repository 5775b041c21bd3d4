"""Large: a picture of so many pixels that it is not copied whole to turn it, to change its kind and to resize it.

A file with alpha, a palette or an EXIF turn would take two or three times its pixels at once. Here only a band of one
byte a pixel is made beside what was decoded, a few rows at a time, and resized.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import PIL.ExifTags
import PIL.Image

from oodshape.images.kinds import Mode, in_mode

STRIP = 1 << 20  # pixels that are copied at a time
Turn = PIL.Image.Transpose
TURNS = {
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


def stored(image: PIL.Image.Image, *, upright: bool) -> Large:
    """A decoded picture as it is stored, and how it is turned."""
    in_mode(_cut(image, (0, 0, 1, 1)), "RGB")  # a kind that cannot be shown is refused with the file's name
    turn = TURNS.get(image.getexif().get(PIL.ExifTags.Base.Orientation, 1)) if upright else None
    return Large(image, turn)


@dataclass(frozen=True)
class Large:
    """A decoded picture, and how it is turned."""

    stored: PIL.Image.Image
    turn: Turn | None = None

    @property
    def size(self) -> tuple[int, int]:
        """(width, height) of the turned picture."""
        width, height = self.stored.size
        return (height, width) if self.turn in SIDEWAYS else (width, height)

    def whole(self) -> PIL.Image.Image:
        """The picture in colour, as `read_image` gives it."""
        return self._pasted("RGB", lambda strip: strip)

    def resized(self, mode: Mode, size: tuple[int, int], how: PIL.Image.Resampling) -> PIL.Image.Image:
        """The picture in this size: the pixels that resizing all of it gives, since no band looks at another."""
        if mode == "L":
            return self._pasted("L", lambda strip: in_mode(strip, "L")).resize(size, how)
        bands = (self._pasted("L", lambda strip, band=band: strip.getchannel(band)) for band in "RGB")  # type: ignore[misc]
        return PIL.Image.merge("RGB", [band.resize(size, how) for band in bands])

    def _pasted(self, mode: Mode, part: Callable[[PIL.Image.Image], PIL.Image.Image]) -> PIL.Image.Image:
        """A picture of this kind, made of a part of every strip in colour."""
        made = PIL.Image.new(mode, self.size)
        for top, strip in self._strips():
            made.paste(part(in_mode(strip, "RGB")), (0, top))
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
