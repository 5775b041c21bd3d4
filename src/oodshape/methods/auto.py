"""Auto: chooses methods from ID data alone, by images that no classifier should trust, and fuses the best.

Two panels of such images are looked at: scrambled ID images, which are far from the known ones, and images of classes
that are left out of the head, which are near them.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, TypeVar

import numpy as np

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Fraction
from oodshape.features.features import Features
from oodshape.features.statistic import Statistic
from oodshape.features.sums import MOST, SELECTION, Summed, Sums
from oodshape.images import identity
from oodshape.methods.base import ScoreRecipe
from oodshape.methods.detector import Method
from oodshape.methods.fit_all import fit_each, score_each
from oodshape.methods.fusion import SCRAMBLED, Fusion, Member
from oodshape.methods.held_out_classes import ClassPanel
from oodshape.methods.records import RECORDS
from oodshape.methods.registry import find_method
from oodshape.methods.training import Training
from oodshape.metrics.detection import auroc

T = TypeVar("T")
FALLBACK = "optfs"
# one method per idea: near copies of one score would crowd the others out of a fusion
CANDIDATES = tuple(record.id for record in RECORDS.values() if record.candidate)
FEWEST = 10  # images of the selection part: the lowest tenth must hold one
BY_HEART = 0.99  # the accuracy on training images from which they say little about others
NO_PANEL = (
    "has no panel of scrambled images to choose by; make one, panel_features(classifier, images, preprocessing), and "
    "give fit(train, panel=...)"
)


@dataclass(frozen=True, eq=False, repr=False)
class Auto(ScoreRecipe):
    """The `fuse` candidates that best tell ID images from two panels of images, and `always`, fused by p-values.

    A `share` of the training images is kept from fitting: on it the candidates are tried, and its scores turn theirs
    into p-values; where ID images are given as `held_out`, those serve, and all training images fit. The worth of a
    candidate is the mean of two AUROCs, weighted by 1 - `near` and `near`: against the panel of scrambled ID images
    that was given (`panel_features`), and against images of a quarter of the classes, left out of the head
    (`ClassPanel`). Where one panel cannot be had, the other decides alone; where neither can, it is OptFS, with a
    warning. A candidate that refuses the features is left out. No OOD data are used.

    Candidates named in `always` are fused too, whatever their worth: where the panels mislead, one score of the
    network's own probabilities keeps the fusion near a threshold on the softmax. `fuse` = 1 takes the best as it is.
    """

    wants_panel = True

    candidates: tuple[str, ...] = ()  # ids of methods; none: CANDIDATES
    fuse: Annotated[int, AtLeast(1)] = 7
    share: Annotated[float, Fraction()] = 0.25
    near: Annotated[float, Fraction(zero=True, one=True)] = 0.5
    always: tuple[str, ...] = ("gen",)

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        object.__setattr__(self, "always", tuple(self.always))

    @property
    def collects(self) -> frozenset[Statistic]:
        return frozenset[Statistic]().union(*(method.collects for method in self.methods().values()))

    @property
    def keeps(self) -> float:
        return self.share

    def methods(self) -> dict[str, Method]:
        """The candidates by name; classes are the predicted ones: images are looked at whose labels nobody knows."""
        return {name: find_method(name).unlabelled() for name in self.candidates or CANDIDATES}

    @property
    def exportable(self) -> bool:
        """Whether every candidate is, so that any choice can be."""
        return all(method.exportable for method in self.methods().values())

    def fit(self, train: Training) -> Fusion:
        fitting, selection = _parts(train, self.share)
        if len(selection) < FEWEST:
            return _fallback(
                train,
                f"keeps {self.share:g} of the training images to choose by and needs at least {FEWEST} there, got "
                f"{len(selection)} of {train.n}; give more images",
            )
        near, notes = self._without_classes(fitting, selection)
        notes = (*_by_heart(train, selection), *notes)
        if not train.panel and near is None:
            return _fallback(train, f"{NO_PANEL}, and {notes[-1] if notes else 'near = 0'}")
        if not train.panel:
            warnings.warn(
                f"auto {NO_PANEL}. It chooses by classes left out alone, and far OOD may suffer.", stacklevel=3
            )
            notes += (f"auto {NO_PANEL}",)
        return self._chosen(fitting, selection, train.panel, near, notes)

    def _without_classes(
        self, fitting: Features | Sums, selection: Features
    ) -> tuple[tuple[str, dict[str, float]] | None, tuple[str, ...]]:
        """(the panel of classes left out in words and its AUROCs, notes)."""
        if self.near == 0:
            return None, ()
        try:
            panel = ClassPanel.of(fitting, selection)
            return (str(panel), panel.aurocs(self.methods())), ()
        except InputError as error:
            return None, (f"no class was left out: {error}",)

    def _chosen(
        self,
        fitting: Features | Sums,
        selection: Features,
        scrambled: tuple[Features, ...],
        near: tuple[str, dict[str, float]] | None,
        notes: tuple[str, ...],
    ) -> Fusion:
        detectors, refused = _sorted_out(dict(fit_each(self.methods(), fitting)))
        inside, more = _sorted_out(score_each(detectors, selection))
        refused |= more
        outside = [score_each(detectors, images) for images in scrambled]
        panels = (*([SCRAMBLED] if scrambled else []), *([] if near is None else [near[0]]))
        weights = [1 - self.near, self.near] if len(panels) == 2 else [1.0]
        values: dict[str, tuple[float, ...]] = {}
        for name in self.methods():
            far = [images[name] for images in outside if name in inside]
            if name in inside and not any(isinstance(scores, InputError) for scores in far):
                apart = [auroc(inside[name], scores) for scores in far]
                values[name] = (*([float(np.mean(apart))] if far else []), *([] if near is None else [near[1][name]]))
        if not values:
            raise list(refused.values())[-1] if refused else InputError("auto has no candidates")
        worth = {name: float(np.dot(weights, row)) for name, row in values.items()}
        ranking = sorted(worth.items(), key=lambda item: -item[1])
        always = self.always if self.fuse > 1 else ()
        fused = [best for place, (best, _) in enumerate(ranking) if place < self.fuse or best in always]
        members = tuple(Member.of_detector(best, detectors[best], inside[best]) for best in fused)
        return Fusion(members, tuple(ranking), panels, tuple(values[name] for name, _ in ranking), notes)


def _parts(train: Training, share: float) -> tuple[Features | Sums, Features]:
    """(images to fit on, images to select by), of one head with the panel."""
    data = train.features if train.summed is None else train.summed
    head = data.head
    for images, what in (
        (train.panel, "panel"),
        (() if train.held_out is None else (train.held_out,), "held-out part"),
    ):
        for part in images:
            if part.head.fingerprint != head.fingerprint:
                raise InputError(
                    f"the {what} comes from head {part.head.fingerprint}, the training images from head "
                    f"{head.fingerprint}; extract both through the same classifier"
                )
    if train.held_out is not None:
        return data if isinstance(data, Features) else data.every, train.held_out
    return split(data, share) if isinstance(data, Features) else _kept(data, share)


def _kept(data: Summed, share: float) -> tuple[Sums, Features]:
    """The two parts of images that were summed: as `split` makes them of many images."""
    if data.share != share:
        raise InputError(
            f"a share of {data.share:g} was kept to choose by when the images were collected, not {share:g}"
        )
    if data.fitting is None or data.selection is None or len(data.selection) < FEWEST:
        raise InputError(f"of {len(data)} images too few were kept to choose by, or all; collect more images")
    return data.fitting, data.selection


def _sorted_out(found: Mapping[str, T | InputError]) -> tuple[dict[str, T], dict[str, InputError]]:
    """(what was found, what was refused): a candidate that does not suit these features is no choice."""
    refused = {name: value for name, value in found.items() if isinstance(value, InputError)}
    return {name: value for name, value in found.items() if not isinstance(value, InputError)}, refused


def _by_heart(train: Training, selection: Features) -> tuple[str, ...]:
    """A note where the network knows the images by heart that methods are chosen by."""
    accuracy = selection.accuracy
    if train.held_out is not None or accuracy is None or accuracy < BY_HEART:
        return ()
    return (
        f"the network knows its training images by heart (accuracy {100 * accuracy:.1f} %), and no ID images were held "
        "out to choose by: calibration images serve where they are many",
    )


def split(train: Features, share: float) -> tuple[Features, Features]:
    """(fitting part, selection part): about a share is in the second, by identity (`identity.held_out`).

    Where a share is FEWEST images or fewer, it is as many; of more than MOST, those beyond are in neither part.
    """
    fewest = int(share * len(train))
    if fewest == 0:
        raise InputError(f"a share of {share:g} of {len(train)} training images is none; auto needs some to select by")
    held = np.zeros(len(train), bool)
    if fewest <= FEWEST:
        held[identity.smallest(train.identities, fewest, 0, SELECTION)] = True
    else:
        held = identity.held_out(train.identities, share, purpose=SELECTION, fewest=FEWEST)
    rows = np.flatnonzero(held)
    kept = identity.smallest(train.identities[rows], MOST, 0, SELECTION)
    return train[np.flatnonzero(~held)], train[rows[kept]]


def _fallback(train: Training, why: str) -> Fusion:
    """OptFS on all images, and a warning that says why."""
    warnings.warn(f"auto {why}. It falls back to {FALLBACK}.", stacklevel=4)
    detector = find_method(FALLBACK).fit(train.features)
    scores = detector.score(train.features)
    return Fusion((Member.of_detector(FALLBACK, detector, scores),), (), notes=(f"auto {why}",))
