"""Auto: chooses methods from ID data alone, by images that no classifier should trust, and fuses the best."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError, check_fraction
from oodshape.core.fields import Ascending, Sizes
from oodshape.features.features import Features
from oodshape.features.kernels import places_torch, taken
from oodshape.images import identity
from oodshape.methods.detector import Detector, Method, collect
from oodshape.methods.row import Row
from oodshape.methods.slots import Evidence, FittedHead, FittedScore, ScoreRecipe, Shape
from oodshape.methods.table import METHODS, ROWS, named
from oodshape.methods.training import Training
from oodshape.metrics.separation import auroc

FALLBACK = "optfs-e"
# one row per idea: near copies of one score would crowd the others out of a fusion
CANDIDATES = (
    *("msp", "mls", "energy", "dice", "react", "ash-s", "vra-p", "optfs-e"),
    *("gen", "scale", "lts", "ras", "bats", "gradnorm", "klm", "she", "fdbd", "nci"),
    *("vim", "mds++", "knn", "cadref", "nnguide"),
)
TAIL = 0.1  # the lowest share of ID scores, below which p-values fall exponentially
FEWEST = 10  # images of the selection part: the lowest tenth must hold one
MOST = 20_000  # images of the selection part: more would not change a choice
ROUNDING = 1e-4  # relative: what float32 may make of one image in batches of other sizes, with room to spare
SMALL = 0.01  # what counts for smaller scores: they are differences of larger ones


@dataclass(frozen=True, eq=False, repr=False)
class Member(FittedScore):
    """A fitted method inside a fusion, with the ID scores that turn its own into p-values."""

    name: str
    shape: Shape
    head: FittedHead
    scorer: FittedScore
    reference: Annotated[NDArray[np.float32], Sizes("N"), Ascending()]  # scores of the selection part
    rounded: bool = False  # whether scores within rounding of one another are one; in old files they are not

    @classmethod
    def of_detector(cls, name: str, detector: Detector, id_scores: Tensor) -> Member:
        """The member that a detector becomes."""
        assert detector.scorer is not None
        reference = np.sort(id_scores.cpu().numpy())
        return cls(name, detector.shape, detector.head, detector.scorer, reference, True)

    def of(self, seen: Evidence) -> Tensor:
        """[n]: the method's own scores."""
        return self.scorer.of(Evidence(seen.batch, self.shape, self.head, self.head.bind(seen.head)))

    def log_p(self, scores: Tensor) -> Tensor:
        """[n]: log of the smoothed share of ID images with a score as low.

        The share is (1 + #{< score}) / (n + 1), linear between neighbours; below the lowest tenth it falls
        exponentially with the mean distance there, so that scores lower than any ID score stay in their order. It is
        the mean of those just below and just above the score, so that equal ID scores, which differ in their last
        bits from batch to batch, get one value.
        """
        ordered, n = self.tensor("reference", scores), len(self.reference)
        k = int(TAIL * n)
        near = self._rounding(ordered[k])
        limit, reach = ordered[k] - near, (ordered[k] - ordered[:k]).mean().clamp_min(1e-12).maximum(near)
        start = self._body(limit.reshape(1)) if self.rounded else math.log((k + 1) / (n + 1))
        return torch.where(scores < limit, start - (limit - scores) / reach, self._body(scores))

    def _body(self, scores: Tensor) -> Tensor:
        """[n]: the log of the share, without the tail."""
        around = self._rounding(scores)
        places = (self._place(scores - around) + self._place(scores + around)) / 2
        return (places / (len(self.reference) + 1)).log()

    def _rounding(self, scores: Tensor) -> Tensor:
        """[n]: how much rounding may have changed them; 0 where that is not looked at."""
        return ROUNDING * self.rounded * scores.abs().clamp_min(SMALL)

    def _place(self, scores: Tensor) -> Tensor:
        """[n]: 1 + the number of ID scores below, linear between neighbours; n above the highest."""
        ordered, n = self.tensor("reference", scores), len(self.reference)
        place = places_torch(scores.contiguous(), ordered, right=False)
        low, high = taken(ordered, (place - 1).clamp_min(0)), taken(ordered, place.clamp_max(n - 1))
        between = torch.where(high > low, (scores - low) / (high - low).clamp_min(1e-30), 0.0).clamp(0, 1)
        return (place + between).clamp(1, n)


@dataclass(frozen=True, eq=False, repr=False)
class Fusion(FittedScore):
    """The summed log p-values of its members (Fisher); the plain score where there is one member only."""

    members: tuple[Member, ...]
    ranking: tuple[tuple[str, float], ...]  # every candidate with its mean AUROC against the panel, best first

    def of(self, seen: Evidence) -> Tensor:
        """[n] fused scores."""
        if len(self.members) == 1:
            return self.members[0].of(seen)
        return torch.stack([member.log_p(member.of(seen)) for member in self.members]).sum(dim=0)

    def __str__(self) -> str:
        """The choice, and how every candidate did against the panel."""
        chosen = ", ".join(member.name for member in self.members)
        lines = [f"{name:<16} {100 * value:6.2f}" for name, value in self.ranking]
        said = ["AUROC (%) of held-out ID images against the panel:"] if lines else []
        return "\n".join([f"chosen: {chosen}", *said, *lines])


@dataclass(frozen=True, eq=False, repr=False)
class Auto(ScoreRecipe):
    """The `fuse` candidates that best tell ID images from a panel of images without content, fused by p-values.

    A `share` of the training images is kept from fitting: on it and on the panel the candidates are ranked by
    AUROC (the mean over the panel's sets), and its scores turn theirs into p-values. The panel is made from ID
    images (`surrogates.Scrambled`), so no OOD data are used. Without a panel it is OptFS (E), with a warning; a
    candidate that refuses the features is left out.
    """

    candidates: tuple[str, ...] = ()  # rows of METHODS; none: CANDIDATES
    fuse: int = 7
    share: float = 0.25

    def __post_init__(self) -> None:
        """Refuse settings that have no meaning."""
        check_fraction("share", self.share)
        if self.fuse < 1:
            raise InputError(f"fuse must be at least 1, got {self.fuse}")
        object.__setattr__(self, "candidates", tuple(self.candidates))

    @property
    def wants_panel(self) -> bool:
        """Yes."""
        return True

    def methods(self) -> dict[str, Method]:
        """The candidates by name."""
        return {name: named(name) for name in self.candidates or CANDIDATES}

    @property
    def exportable(self) -> bool:
        """Whether every candidate is, so that any choice can be."""
        return all(method.exportable for method in self.methods().values())

    def fit(self, train: Training) -> Fusion:
        """The fusion of the best candidates."""
        fitting, selection = split(train.features, self.share)
        if not train.panel or len(selection) < FEWEST:
            return _fallback(train.features, self.share, len(selection) if train.panel else None)
        for images in train.panel:
            if images.head.fingerprint != fitting.head.fingerprint:
                raise InputError(
                    f"the panel comes from head {images.head.fingerprint}, the training images from head "
                    f"{fitting.head.fingerprint}; extract both through the same classifier"
                )
        methods = self.methods()
        collect(methods, fitting)
        members: dict[str, Member] = {}
        values: dict[str, float] = {}
        for name, method in methods.items():
            try:
                detector = method.fit(fitting)
                inside = detector.score(selection)
                value = float(np.mean([auroc(inside, detector.score(images)) for images in train.panel]))
            except InputError as error:  # a candidate that does not suit these features is no choice
                refused = error
                continue
            members[name], values[name] = Member.of_detector(name, detector, inside), value
            ranking = sorted(values.items(), key=lambda item: -item[1])
            members = {best: members[best] for best, _ in ranking[: self.fuse]}  # the others may be large
        if not members:
            raise refused
        return Fusion(tuple(members.values()), tuple(ranking))


def split(train: Features, share: float) -> tuple[Features, Features]:
    """(fitting part, selection part): about a share is in the second, by identity (`identity.held_out`).

    Where a share is FEWEST images or fewer, it is as many; of more than MOST, those beyond are in neither part.
    """
    fewest = int(share * len(train))
    if fewest == 0:
        raise InputError(f"a share of {share:g} of {len(train)} training images is none; auto needs some to select by")
    held = np.zeros(len(train), bool)
    if fewest <= FEWEST:
        held[identity.smallest(train.identities, fewest, 0, "selection")] = True
    else:
        held = identity.held_out(train.identities, share, purpose="selection", fewest=FEWEST)
    rows = np.flatnonzero(held)
    kept = identity.smallest(train.identities[rows], MOST, 0, "selection")
    return train[np.flatnonzero(~held)], train[rows[kept]]


def _fallback(train: Features, share: float, held_out: int | None) -> Fusion:
    """OptFS (E) on all images, and a warning that says why."""
    why = (
        "has no panel to choose by; make one from ID images, panel_features(classifier, images, preprocessing), and "
        "give fit(train, panel=...)"
        if held_out is None
        else f"keeps {share:g} of the training images to choose by and needs at least {FEWEST} there, "
        f"got {held_out} of {len(train)}; give more images"
    )
    warnings.warn(f"auto {why}. It falls back to OptFS (E).", stacklevel=4)
    detector = named(FALLBACK).fit(train)
    return Fusion((Member.of_detector(FALLBACK, detector, detector.score(train)),), ())


# the last row of the table; METHODS stays one dict, so that a method that a user puts there is a candidate too
ROWS["auto"] = Row(
    Method(score=Auto()),
    "the methods that best tell ID images from scrambled ones, fused; no OOD data, any architecture",
    "80 training images, and 500 scrambled ones through the network",
    "where unknowns are much like known images: check on your own",
    "Our own; p-values are fused as Fisher did.",
)
METHODS["auto"] = ROWS["auto"].method
