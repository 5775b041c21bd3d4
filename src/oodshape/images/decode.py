"""Image files as pictures of 8 bits, whatever is in them."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import PIL.Image

from oodshape.core.errors import InputError
from oodshape.images.formats import open_format, refusal
from oodshape.images.kinds import whole
from oodshape.images.large import Large, stored
from oodshape.images.limits import PLAIN, TURNS, Limits
from oodshape.images.places import readable

Made = TypeVar("Made")
LARGE = 1 << 24  # pixels; two copies of fewer are 128 MB
DECODERS = {"WEBP": 16, "AVIF": 10, "JPEG2000": 20, "HEIF": 16}  # bytes a pixel; others take PLAIN
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
    return decoded(path, lambda image: whole(image, upright=upright))


def open_image(path: str | Path, *, upright: bool = True) -> PIL.Image.Image | Large:
    """As `read_image`, for who resizes it next: a large picture stays as it is stored."""
    return decoded(path, lambda image: _opened(image, upright=upright))


def _opened(image: PIL.Image.Image, *, upright: bool) -> PIL.Image.Image | Large:
    make = stored if image.width * image.height > LARGE else whole
    return make(image, upright=upright)


def decoded(path: str | Path, then: Callable[[PIL.Image.Image], Made]) -> Made:
    """What a function makes of the picture in a file; whatever is wrong with the file is an `Unreadable`."""
    if _QUIET not in warnings.filters:
        warnings.filterwarnings("ignore", module=_QUIET[3].pattern)
    try:
        with open_format(readable(path) if isinstance(path, str) else path) as image:
            _check(path, image)
            image.load()
            return then(image)
    except Unreadable:
        raise
    except PIL.UnidentifiedImageError:
        raise Unreadable(path, refusal(path)) from None
    except Exception as error:  # a broken file can raise almost anything: OSError, SyntaxError, struct.error ...
        raise Unreadable(path, f"cannot be read as an image ({error})") from None


def _check(path: str | Path, image: PIL.Image.Image) -> None:
    """Refuse what would cost too much, as known from the file's first bytes; wait where others decode."""
    cost = _decoder_cost(image)
    too_large = Limits.now().refusal(*image.size, image.format or "it", cost)
    if too_large:
        raise Unreadable(path, too_large)
    # beside what the decoder takes, smaller pictures are copied whole
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
