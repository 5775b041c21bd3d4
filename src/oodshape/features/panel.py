"""The panel: images that no classifier should trust, made from ID images, through the network."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from oodshape.features.features import Features
from oodshape.images.image_set import ImageSet, limited
from oodshape.images.preprocessing import Preprocessing
from oodshape.images.scrambled import Scrambled
from oodshape.networks.classifier import Classifier

SIZE = 500  # images


def panel_features(
    classifier: Classifier,
    images: ImageSet,
    preprocessing: Preprocessing,
    *,
    cache: str | Path | None = None,
    size: int = SIZE,
    seed: int = 0,
    progress: bool | None = None,
    batch_size: int = 64,
    workers: int | None = None,
) -> list[Features]:
    """The features of a panel for `fit(train, panel=...)`: at most `size` phase-scrambled images.

    They are made from a seeded subset of the ID training `images`; with a `cache` folder they are kept like any
    other features.
    """
    scrambled = Scrambled(limited(images, size, seed), seed)
    how: dict[str, Any] = {"batch_size": batch_size, "workers": workers, "progress": progress}
    return [Features.extract(classifier, scrambled, preprocessing, cache=cache, **how)]
