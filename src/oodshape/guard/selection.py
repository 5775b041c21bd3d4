"""Which held-out images choose the methods, and which set the threshold: no image does both."""

from __future__ import annotations

import numpy as np

from oodshape.features.features import Features
from oodshape.features.sums import Summed
from oodshape.images import identity
from oodshape.methods.auto import BY_HEART
from oodshape.metrics.conformal import images_needed

SHARE = 0.5  # of the held-out images, to choose by
FEWEST = 40  # images to choose by: a panel of classes left out needs some on either side


def parts(
    train: Features | Summed, held_out: Features, alpha: float, *, per_class: bool = False
) -> tuple[Features | None, Features]:
    """(held-out images to choose methods by, those that set the threshold); the first is None where none are needed.

    They are needed where the network knows its training images by heart: then every method tells those from anything.
    None are taken either where too few would remain for the threshold, or for that of a class which had enough.
    """
    accuracy = train.accuracy
    if accuracy is None or accuracy < BY_HEART or len(held_out) < 2 * FEWEST:
        return None, held_out
    chosen = identity.held_out(held_out.identities, SHARE, purpose="choice of methods", fewest=FEWEST)
    rest = held_out[np.flatnonzero(~chosen)]
    needed = images_needed(alpha)
    if len(rest) < needed or (per_class and _own(rest, needed) != _own(held_out, needed)):
        return None, held_out
    return held_out[np.flatnonzero(chosen)], rest


def _own(held_out: Features, needed: int) -> set[int]:
    """The predicted classes with enough images for a threshold of their own."""
    classes, counts = np.unique(held_out.predictions.cpu().numpy(), return_counts=True)
    return set(classes[counts >= needed].tolist())
