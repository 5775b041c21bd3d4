"""The panel: images that no classifier should trust, made from ID images, through the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.features.tensor_batches import refuse_cache, run_tensors
from oodshape.images.datasets.synthetic import Scrambled, noise_of, scrambled
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.identity import Keys
from oodshape.images.sources.image_set import limited
from oodshape.images.sources.listing import Given, image_set
from oodshape.networks.classifier import Classifier

SIZE = 500  # images


def panel_features(
    classifier: Classifier,
    images: Given,
    preprocessing: Preprocessing | None = None,
    *,
    prepared: bool = False,
    cache: str | Path | None = None,
    size: int = SIZE,
    seed: int = 0,
    progress: bool | None = None,
    batch_size: int = 64,
    workers: int | None = None,
) -> list[Features]:
    """The features of a panel for `fit(train, panel=...)`: at most `size` phase-scrambled images.

    They are made from a seeded subset of the ID training `images`; with a `cache` folder they are kept like any
    other features. With `prepared`, the images are batches of tensors that the network takes as they are.
    """
    if prepared:
        refuse_cache(cache)
        seen = run_tensors(classifier, images, keep=size, progress=progress)
        return tensor_panel(classifier, seen.kept, seen.identities[seen.kept_rows], seed, progress=progress)
    made = Scrambled(limited(image_set(images), size, seed), seed)
    how: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "progress": progress}
    return [Features.extract(classifier, made, preprocessing, cache=cache, **how)]


def tensor_panel(
    classifier: Classifier, images: Tensor, which: Keys, seed: int = 0, *, progress: bool | None = None
) -> list[Features]:
    """The panel of prepared tensors [N, C, H, W]: scrambled, and cut off where the values of their channel end."""
    if images.ndim != 4 or not images.is_floating_point():
        raise InputError(
            f"a method that chooses by scrambled images needs float tensors [N, C, H, W], got {list(images.shape)}; "
            "name another method, such as optfs-e"
        )
    low, high = images.amin(dim=(0, 2, 3))[:, None, None], images.amax(dim=(0, 2, 3))[:, None, None]
    made = torch.empty_like(images)
    for row, image in enumerate(images):
        values = scrambled(image.permute(1, 2, 0).double().numpy(), noise_of(int(which[row]), seed))
        made[row] = torch.from_numpy(values).permute(2, 0, 1).to(made.dtype).clamp(low, high)
    return [Features.extract(classifier, made, prepared=True, progress=progress)]
