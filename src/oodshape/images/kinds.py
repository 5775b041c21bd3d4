"""A picture's kind: in colour or gray with 8 bits, upright or as the camera held it."""

from __future__ import annotations

from typing import Literal

import numpy as np
import PIL.Image
import PIL.ImageOps

from oodshape.core.errors import InputError

Mode = Literal["RGB", "L"]  # colour or gray, 8 bits


def whole(image: PIL.Image.Image, *, upright: bool) -> PIL.Image.Image:
    """A decoded picture in colour, turned or not."""
    if upright:
        PIL.ImageOps.exif_transpose(image, in_place=True)
    return in_mode(image, "RGB")


def in_mode(image: PIL.Image.Image, mode: Mode) -> PIL.Image.Image:
    """The picture in colour (RGB) or gray (L), 8 bits: 16 bits are scaled, alpha is dropped as in training.

    >>> in_mode(PIL.Image.fromarray(np.array([[0, 32768, 65535]], np.uint16)), "L").tobytes().hex(" ")
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
