"""Fusion: several fitted methods as one score, each through its p-values among ID images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import Ascending, Sizes
from oodshape.features.kernels import look_up, search_sorted
from oodshape.methods.base import Evidence, FittedHead, FittedScore, Shape
from oodshape.methods.detector import Detector

TAIL = 0.1  # the lowest share of ID scores, below which p-values fall exponentially
SCRAMBLED = "scrambled ID images"
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

    @classmethod
    def of_detector(cls, name: str, detector: Detector, id_scores: Tensor) -> Member:
        reference = np.sort(id_scores.cpu().numpy())
        return cls(name, detector.shape, detector.head, detector.scorer, reference)

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
        ordered = self.tensor("reference", scores)
        k = int(TAIL * len(ordered))
        near = self._rounding(ordered[k])
        limit, reach = ordered[k] - near, (ordered[k] - ordered[:k]).mean().clamp_min(1e-12).maximum(near)
        return torch.where(scores < limit, self._body(limit.reshape(1)) - (limit - scores) / reach, self._body(scores))

    def _body(self, scores: Tensor) -> Tensor:
        """[n]: the log of the share, without the tail."""
        around = self._rounding(scores)
        places = (self._place(scores - around) + self._place(scores + around)) / 2
        return (places / (len(self.reference) + 1)).log()

    def _rounding(self, scores: Tensor) -> Tensor:
        """[n]: how much rounding may have changed them."""
        return ROUNDING * scores.abs().clamp_min(SMALL)

    def _place(self, scores: Tensor) -> Tensor:
        """[n]: 1 + the number of ID scores below, linear between neighbours; n above the highest."""
        ordered, n = self.tensor("reference", scores), len(self.reference)
        place = search_sorted(scores.contiguous(), ordered, right=False)
        low, high = look_up(ordered, (place - 1).clamp_min(0)), look_up(ordered, place.clamp_max(n - 1))
        between = torch.where(high > low, (scores - low) / (high - low).clamp_min(1e-30), 0.0).clamp(0, 1)
        return (place + between).clamp(1, n)


@dataclass(frozen=True, eq=False, repr=False)
class Fusion(FittedScore):
    """The summed log p-values of its members (Fisher); the plain score where there is one member only."""

    members: tuple[Member, ...]
    ranking: tuple[tuple[str, float], ...]  # every candidate with its worth, best first
    panels: tuple[str, ...] = ()  # what the candidates were tried on, in words
    values: tuple[tuple[float, ...], ...] = ()  # for every candidate of the ranking, its AUROC against each panel
    notes: tuple[str, ...] = ()  # what could not be done, and why

    def __post_init__(self) -> None:
        if [len(row) for row in self.values] != [len(self.panels)] * len(self.ranking):
            raise InputError(
                f"{len(self.values)} rows of values for {len(self.ranking)} candidates and {len(self.panels)} panels"
            )

    def of(self, seen: Evidence) -> Tensor:
        """[n] fused scores."""
        if len(self.members) == 1:
            return self.members[0].of(seen)
        return torch.stack([member.log_p(member.of(seen)) for member in self.members]).sum(dim=0)

    @property
    def against_scrambled(self) -> float | None:
        """The best AUROC of a candidate against scrambled images, or None where none were looked at."""
        if SCRAMBLED not in self.panels:
            return None
        return max(row[self.panels.index(SCRAMBLED)] for row in self.values)

    def __str__(self) -> str:
        """The choice, how every candidate did against the panels, and what could not be done."""
        lines = [f"chosen: {', '.join(member.name for member in self.members)}"]
        if self.ranking:
            lines.append("AUROC (%) of held-out ID images against:")
            lines += [f"  {place + 1}: {panel}" for place, panel in enumerate(self.panels)]
            columns = range(1, len(self.panels) + 1)
            lines.append(" " * 16 + "".join(f"{column:>7}" for column in columns) + "   worth")
            for (name, worth), row in zip(self.ranking, self.values, strict=True):
                lines.append(f"{name:<16}" + "".join(f" {100 * value:6.2f}" for value in row) + f"  {100 * worth:6.2f}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])
