"""Part: the sums over training features that a method may ask for, by name."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from oodshape.core.errors import InputError


class Part(StrEnum):
    """A sum over the training features, or a sample of them; classes are those that the network predicts.

    The parts of labels are zeros where the images have none.

    A part is the string of its name, so that files, and sets of plain names, mean the same.

    >>> Part.COUNTS == "counts", Part("counts")
    (True, <Part.COUNTS: 'counts'>)
    """

    COUNTS = "counts"  # [C]: images of each class
    CLASS_SUMS = "class_sums"  # [C, M]: features of each class
    UNIT_CLASS_SUMS = "unit_class_sums"  # [C, M]: features of length 1 of each class
    SOFTMAX_SUMS = "softmax_sums"  # [C, C]: probabilities of each class
    SQUARES = "squares"  # [M]: squared features
    SECOND = "second"  # [M, M]: products of features
    UNIT_SECOND = "unit_second"  # [M, M]: products of features of length 1
    PROFILE = "profile"  # [M]: sorted rows
    ENERGY = "energy"  # [1]
    BANK = "bank"  # [B, M]: at most 5,000 images
    LABEL_COUNTS = "label_counts"  # [C]: images of each label
    LABEL_SUMS = "label_sums"  # [C, M]: features of each label
    UNIT_LABEL_SUMS = "unit_label_sums"  # [C, M]: features of length 1 of each label
    RIGHT_COUNTS = "right_counts"  # [C]: images that are predicted as their label
    RIGHT_SUMS = "right_sums"  # [C, M]: features of these images
    LABEL_SURPRISE = "label_surprise"  # [T]: mean logit at each temperature less the label's (`TEMPERATURES`)


def parts_named(names: Iterable[str]) -> frozenset[Part]:
    """The parts of those names, or an error that lists those there are.

    >>> parts_named(["counts"])
    frozenset({<Part.COUNTS: 'counts'>})
    """
    asked = frozenset(names)
    if asked - frozenset(Part):
        raise InputError(f"no part is called {min(asked - frozenset(Part))!r}; there are {', '.join(sorted(Part))}")
    return frozenset(map(Part, asked))
