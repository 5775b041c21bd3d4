"""A guard and its network as one ONNX file, compared with torch on the user's images or on made-up ones."""

from __future__ import annotations

from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.guard.fitted import Fitted
from oodshape.guard.onnx import ExportReport, export_onnx
from oodshape.images.listing import Given, one_by_one
from oodshape.images.prefetch import prepared
from oodshape.images.preprocessing import Preprocessing
from oodshape.networks.opening import Source

COMPARED = 64  # images at the most


def export_guard(guard: Fitted, source: Source, path: str | Path, images: Given | None = None) -> ExportReport:
    """Write the ONNX file, compared on the first images given, or on made-up ones; how it compares."""
    about = guard.about
    batch = made_up(guard.preparation) if images is None else _given(guard, images)
    return export_onnx(
        source.classifier,
        guard.detector,
        path,
        batch,
        preprocessing=about.preprocessing,
        upright=about.upright,
        classes=about.names or None,
    )


def _given(guard: Fitted, images: Given) -> Tensor:
    listing = one_by_one(images)
    read = partial(listing.read, upright=guard.about.upright)
    every = (prepared(read, guard.preparation, pair) for pair in listing.pairs())
    found = list(islice((pixels for pixels in every if not isinstance(pixels, InputError)), COMPARED))
    if not found:
        raise InputError(f"no image of {listing.name} can be read; give other images to compare on")
    one_size = [pixels for pixels in found if pixels.shape == found[0].shape]
    return guard.preparation.normalize(np.stack(one_size))


def made_up(preprocessing: Preprocessing, count: int = 16) -> Tensor:
    """[count, C, H, W]: smooth random images, seeded, prepared as the network wants them.

    >>> from oodshape.images.preprocessing import IMAGENET
    >>> made_up(IMAGENET, 2).shape
    torch.Size([2, 3, 224, 224])
    """
    size = preprocessing.size
    if size is None:
        raise InputError("the preprocessing leaves images in their own size; give --images to compare on")
    chance = torch.Generator().manual_seed(0)
    coarse = torch.rand(count, preprocessing.channels, 8, 8, generator=chance)
    smooth = torch.nn.functional.interpolate(coarse, size, mode="bilinear")
    pixels = (255 * smooth).round().to(torch.uint8).permute(0, 2, 3, 1).contiguous()
    return preprocessing.normalize(pixels.numpy())
