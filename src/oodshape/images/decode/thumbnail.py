"""An image small enough to stand inside a page."""

from __future__ import annotations

import io
from base64 import b64encode

from oodshape.images.decode.preprocessing import as_picture
from oodshape.images.decode.read import to_mode
from oodshape.images.sources.image_set import Image

SIDE = 64  # pixels of a thumbnail's longer side, at most


def make_thumbnail(image: Image, side: int = SIDE) -> str:
    """The image as a data URI, at most `side` pixels wide and high: gray as PNG, colour as WebP.

    >>> import numpy as np
    >>> make_thumbnail(np.zeros((2, 2), np.uint8))[:22]
    'data:image/png;base64,'
    """
    shown = as_picture(image)
    shown = to_mode(shown, "L" if shown.mode in ("1", "L", "LA") or shown.mode.startswith("I;16") else "RGB").copy()
    shown.thumbnail((side, side))
    kind, options = ("png", {"optimize": True}) if shown.mode == "L" else ("webp", {"quality": 80, "method": 6})
    data = io.BytesIO()
    shown.save(data, format=kind, **options)
    return f"data:image/{kind};base64,{b64encode(data.getvalue()).decode()}"
