"""Held-out classes, a proxy set of `auto`: without some classes in the head, their images are near OOD images."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.features.moments import SCATTERS
from oodshape.features.training_sums import LeftOut, Sums
from oodshape.images import identity
from oodshape.methods.detector import Detector, Method
from oodshape.methods.fit_all import fit_each, score_each
from oodshape.metrics.detection import auroc
from oodshape.networks.head import Head, drop_classes

SHARE = 0.25  # of the classes
SEED = 0
FEWEST_CLASSES = 2  # with one class, every score of the probabilities is constant
FEWEST_IMAGES = 10  # selection images of the remaining and of the held-out classes
MOST_IMAGES = 5_000  # selection images: so many give an AUROC to half a point
REFUSED = 0.5  # the AUROC of a method that cannot be fitted


@dataclass(frozen=True, eq=False)
class HeldOutClasses:
    """Images of the remaining classes, to fit on and to select by, and images of the held-out classes.

    All have the head without the held-out classes. An image belongs to the class that the *whole* head predicts.
    """

    left_out: int  # held-out classes
    classes: int  # of the whole head
    fitting: Features | Sums
    inside: Features
    outside: Features

    @classmethod
    def of(
        cls, fitting: Features | Sums, selection: Features, needs: frozenset[str] = frozenset(), seed: int = SEED
    ) -> HeldOutClasses:
        """Hold out a seeded quarter of the classes; refuse if too little would remain.

        Scatters among `needs` are collected once for all images and for those of the remaining classes.

        >>> head = (np.eye(8), None)
        >>> near = HeldOutClasses.of(*(Features.from_arrays(np.eye(8)[np.arange(n) % 8], head) for n in (80, 48)))
        >>> near.left_out, len(near.fitting), len(near.inside), len(near.outside), near.inside.head.classes
        (2, 60, 36, 12, 6)
        """
        head = fitting.head
        left_out = hold_out_classes(head, seed)
        count = int(left_out.sum())
        if head.classes - count < FEWEST_CLASSES:
            raise InputError(f"the network has {head.classes} classes, and {FEWEST_CLASSES} must remain")
        stay, gone = _staying(fitting, left_out, needs)
        if 2 * gone > len(fitting):
            raise InputError(f"{gone} of {len(fitting)} images belong to the held-out classes, more than half")
        selection = selection[identity.smallest(selection.identities, MOST_IMAGES, seed, "held-out classes")]
        held_gone = left_out[selection.predictions.cpu().numpy()]
        fewer = min(int(held_gone.sum()), int((~held_gone).sum()))
        if fewer < FEWEST_IMAGES:
            raise InputError(f"{fewer} selection images on one side, {FEWEST_IMAGES} needed")
        smaller = drop_classes(head, left_out)
        sides = (selection[np.flatnonzero(rows)].with_head(smaller) for rows in (~held_gone, held_gone))
        return cls(count, head.classes, stay, *sides)

    def __str__(self) -> str:
        return f"held-out classes ({len(self.outside)} images, {self.left_out} of {self.classes} classes)"

    def aurocs(self, methods: Mapping[str, Method]) -> dict[str, float]:
        """The AUROC of each method, fitted without the held-out classes, against their images."""
        fitted = {name: found for name, found in fit_each(methods, self.fitting) if isinstance(found, Detector)}
        inside, outside = score_each(fitted, self.inside), score_each(fitted, self.outside)
        values = dict.fromkeys(methods, REFUSED)
        for name in fitted:
            sides = inside[name], outside[name]
            if not any(isinstance(side, InputError) for side in sides):
                values[name] = auroc(*sides)
        return values


def hold_out_classes(head: Head, seed: int = SEED) -> LeftOut:
    """[C]: whether a class is held out: a seeded quarter of the classes, at least one."""
    left_out = np.zeros(head.classes, bool)
    count = max(1, int(SHARE * head.classes))
    left_out[identity.smallest(identity.from_numbers(head.classes), count, seed, "classes left out")] = True
    return left_out


def _staying(fitting: Features | Sums, left_out: LeftOut, needs: frozenset[str]) -> tuple[Features | Sums, int]:
    """(The images of the remaining classes, behind the smaller head; the number of the others.)"""
    if isinstance(fitting, Features):
        fitting.moments(needs - SCATTERS.keys())  # predicts classes in the same pass
        gone = left_out[fitting.predictions.cpu().numpy()]
        if gone.all():
            return fitting, len(fitting)
        stay = fitting[np.flatnonzero(~gone)].with_head(drop_classes(fitting.head, left_out))
        fitting.add_scatters(needs, stay, *([fitting[np.flatnonzero(gone)]] if gone.any() else []))
        return stay, int(gone.sum())
    near = fitting.near
    return (fitting, len(fitting)) if near is None else (near, len(fitting) - len(near))
