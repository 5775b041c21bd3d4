"""Image files as pictures of 8 bits, whatever is in them."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Literal

import numpy as np
import PIL.Image
import PIL.ImageOps

from oodshape.core.errors import InputError
from oodshape.images.limits import TURNS, Limits
from oodshape.images.places import readable

# An EXIF block that cannot be read says nothing about the pixels. Kept for good, and not for the length of a read:
# filters belong to the whole process, and a thread that puts back what it found undoes what others did meanwhile.
_QUIET = ("ignore", None, Warning, re.compile(r"PIL\.TiffImagePlugin"), 0)


class Unreadable(InputError):
    """A file that is no image, or a broken one."""

    def __init__(self, path: str | Path, reason: str) -> None:
        """Name the file, what is wrong with it, and the way out."""
        super().__init__(f"{path} {reason}; remove or replace the file")
        self.reason = reason


def read_image(path: str | Path, *, upright: bool = True) -> PIL.Image.Image:
    """The picture in a file, the first of several: RGB, 8 bits, turned upright as its EXIF orientation says.

    upright=False leaves it as the camera held it, as the loaders of torchvision and timm do. An image over the
    `Limits` is not decoded.
    """
    if _QUIET not in warnings.filters:
        warnings.filterwarnings("ignore", module=_QUIET[3].pattern)
    try:
        with PIL.Image.open(readable(path) if isinstance(path, str) else path) as image:
            too_large = Limits.now().refusal(*image.size)  # known from the file's first bytes
            if too_large:
                raise Unreadable(path, too_large)
            # RGB takes four bytes a pixel, and other kinds are copied
            TURNS.wait(image.width * image.height * (4 if image.mode == "RGB" else 8))
            image.load()
            if upright:
                PIL.ImageOps.exif_transpose(image, in_place=True)
            return in_mode(image, "RGB")
    except Unreadable:
        raise
    except PIL.UnidentifiedImageError:
        raise Unreadable(path, "is no image that Pillow can read") from None
    except Exception as error:  # a broken file can raise almost anything: OSError, SyntaxError, struct.error ...
        raise Unreadable(path, f"cannot be read as an image ({error})") from None


def in_mode(image: PIL.Image.Image, mode: Literal["RGB", "L"]) -> PIL.Image.Image:
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
