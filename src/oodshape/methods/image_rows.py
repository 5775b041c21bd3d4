"""Rows of methods that cannot work on features alone: a benchmark runs them where they are named."""

from __future__ import annotations

from oodshape.methods.adascale import AdaScale
from oodshape.methods.detector import Method
from oodshape.methods.row import SIGNED, Row

PAPER = "Regmi, *AdaSCALE: Adaptive Scaling for OOD Detection*, arXiv 2503.08023, 2025."
NEEDS = "ReLU features, the images themselves, and gradients: three passes and one backward for each image"

IMAGE_ROWS: dict[str, Row] = {
    "adascale-a": Row(
        Method(perturb=AdaScale()),
        "energy after scaling the features, more where a step in the image moves the largest of them less",
        NEEDS,
        SIGNED,
        PAPER,
    ),
    "adascale-l": Row(
        Method(perturb=AdaScale(on_logits=True)),
        "energy after scaling the logits by the same idea",
        NEEDS,
        SIGNED,
        PAPER,
    ),
}
IMAGE_METHODS: dict[str, Method] = {name: row.method for name, row in IMAGE_ROWS.items()}
