"""Whether class statistics go by the images' labels or by the network's predictions."""

from __future__ import annotations

from typing import Literal

from oodshape.core.errors import InputError
from oodshape.features.moments import Moments
from oodshape.features.parts import Part

Classes = Literal["predicted", "labels", "auto"]
CLASSES: tuple[Classes, ...] = ("predicted", "labels", "auto")
CHECKED = frozenset([Part.LABEL_COUNTS, Part.RIGHT_COUNTS])  # what the check looks at
LEAST_RIGHT = 0.5  # of the images must be predicted as their label: in another order hardly any is


def check_classes(classes: str) -> None:
    """Refuse a way to find an image's class that there is not."""
    if classes not in CLASSES:
        raise InputError(f"classes must be one of {', '.join(CLASSES)}, got {classes!r}")


def by_label(moments: Moments, classes: Classes) -> bool:
    """Whether classes are those of the labels: every image has one, and they are in the network's order.

    `labels` refuses images for which that is not so, `auto` takes the predicted classes for them.
    """
    if classes == "predicted":
        return False
    why = _why_not(moments)
    if why and classes == "labels":
        raise InputError(f'{why}; give labels in the order of the network\'s classes, or use classes="predicted"')
    return not why


def _why_not(moments: Moments) -> str:
    if not moments.parts.keys() >= CHECKED:
        return "the moments hold no sums by label"
    labelled, right = (float(moments.parts[part].sum()) for part in (Part.LABEL_COUNTS, Part.RIGHT_COUNTS))
    if labelled < moments.n:
        return f"{moments.n - labelled:.0f} of {moments.n} training images have no label that is a class of the network"
    if right < LEAST_RIGHT * moments.n:
        return (
            f"the network predicts the label of only {100 * right / moments.n:.1f} % of the training images: their "
            "labels may be in another order than its classes"
        )
    return ""
