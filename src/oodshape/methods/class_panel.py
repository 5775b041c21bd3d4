"""The second panel of `auto`: some classes are left out of the head, and their images are near OOD images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.images import identity
from oodshape.methods.detector import Method, collect
from oodshape.metrics.separation import auroc
from oodshape.networks.head import Head

SHARE = 0.25  # of the classes
SEED = 0
FEWEST_CLASSES = 2  # with one class, every score of the probabilities is constant
FEWEST_IMAGES = 10  # of the selection part, inside and outside
REFUSED = 0.5  # the AUROC of a method that cannot be fitted: it tells nothing apart


@dataclass(frozen=True, eq=False)
class ClassPanel:
    """Images of the classes that stay, to fit on and to select by, and those of the classes left out.

    All have the head without the classes left out. An image belongs to the class that the *whole* head predicts.
    """

    left_out: int  # classes
    classes: int  # of the whole head
    fitting: Features
    inside: Features
    outside: Features

    @classmethod
    def of(cls, fitting: Features, selection: Features, seed: int = SEED) -> ClassPanel:
        """The panel of a seeded quarter of the classes; refused where too little would remain.

        >>> head = (np.eye(8), None)
        >>> panel = ClassPanel.of(*(Features.from_arrays(np.eye(8)[np.arange(n) % 8], head) for n in (80, 48)))
        >>> panel.left_out, len(panel.fitting), len(panel.inside), len(panel.outside), panel.inside.head.classes
        (2, 60, 36, 12, 6)
        """
        head = fitting.head
        count = max(1, int(SHARE * head.classes))
        left_out = np.zeros(head.classes, bool)
        left_out[identity.smallest(identity.numbered(head.classes), count, seed, "classes left out")] = True
        if head.classes - count < FEWEST_CLASSES:
            raise InputError(f"the network has {head.classes} classes, and {FEWEST_CLASSES} must stay")
        gone, held_gone = (left_out[part.predictions.cpu().numpy()] for part in (fitting, selection))
        if 2 * gone.sum() > len(gone):
            raise InputError(f"{int(gone.sum())} of {len(gone)} images belong to the classes left out, more than half")
        fewer = min(int(held_gone.sum()), int((~held_gone).sum()))
        if fewer < FEWEST_IMAGES:
            raise InputError(f"{fewer} images to select by lie on one side, and {FEWEST_IMAGES} are needed")
        stays = torch.from_numpy(np.flatnonzero(~left_out)).to(head.weight.device)
        smaller = Head(head.weight[stays].contiguous(), head.bias[stays].contiguous())
        parts = ((fitting, ~gone), (selection, ~held_gone), (selection, held_gone))
        return cls(count, head.classes, *(part[np.flatnonzero(rows)].with_head(smaller) for part, rows in parts))

    def __str__(self) -> str:
        """What it is, in words."""
        return f"{len(self.outside)} images of {self.left_out} of {self.classes} classes, left out"

    def collect(self, methods: Mapping[str, Method]) -> None:
        """Go over the images to fit on once for all methods."""
        collect(methods, self.fitting)

    def auroc(self, method: Method) -> float:
        """How well a method, fitted without the classes left out, tells their images from the others."""
        try:
            detector = method.fit(self.fitting)
            return auroc(detector.score(self.inside), detector.score(self.outside))
        except InputError:
            return REFUSED
