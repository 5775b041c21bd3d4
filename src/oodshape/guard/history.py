"""History: what a watched stream looked like over time, by thousand images and by class, in bounded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Sizes, Value

BLOCK = 1000  # readable images
BINS = 20  # of p-values
MOST = 1024  # blocks; then two become one
CLASSES = 4096  # names; what comes after counts as others
OTHERS = "(others)"
Count = Annotated[int, AtLeast(0)]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, repr=False)
class Event(Value):
    """Something that happened after so many readable images: an alarm, or a reset."""

    kind: str
    image: Count
    began: Annotated[int, AtLeast(1)] | None = None  # near which the change began, by the estimate


@dataclass(frozen=True, eq=False, repr=False)
class History(Value):
    """Counts by block of readable images, the last one still growing; beside them what happened, and every class.

    >>> History().after(np.array([0.01, 0.5]), np.array([True, False]), 1, ("cat", "dog"), (0.5, 0.0)).rejected
    array([1])
    """

    block: Annotated[int, AtLeast(1)] = BLOCK
    p_values: Annotated[Ints, Sizes("T B"), AtLeast(0)] | None = None  # by twentieths
    rejected: Annotated[Ints, Sizes("T"), AtLeast(0)] | None = None
    unreadable: Annotated[Ints, Sizes("T"), AtLeast(0)] | None = None
    evidence: Annotated[NDArray[np.float64], Sizes("T E"), AtLeast(0)] | None = None  # logs, at the end of each block
    names: tuple[str, ...] = ()
    classes: Annotated[Ints, Sizes("N K"), AtLeast(0)] | None = None  # accepted, rejected
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        """Refuse counts that do not fit together."""
        p, rejected = self.p_values, self.rejected
        if p is not None and rejected is not None and (p.shape[1] != BINS or (rejected > p.sum(axis=1)).any()):
            raise InputError("a history rejects more images than it has")
        blocks = (p, rejected, self.unreadable, self.evidence)
        if len({each is None for each in blocks}) > 1 or (self.evidence is not None and self.evidence.shape[1] != 2):
            raise InputError("a history lacks some of its counts")
        if (self.sizes > self.block).any():
            raise InputError(f"a history has {int(self.sizes.max())} images in a block of {self.block}")
        if self.classes is not None and self.classes.shape[1] != 2:
            raise InputError(f"a history counts its classes in {self.classes.shape[1]} ways, not in two")
        if (0 if self.classes is None else len(self.classes)) != len(self.names):
            raise InputError(f"a history of {len(self.names)} classes has other counts")

    @property
    def sizes(self) -> Ints:
        """[T]: how many readable images each block has."""
        return np.zeros(0, np.int64) if self.p_values is None else np.asarray(self.p_values.sum(axis=1))

    @property
    def seen(self) -> int:
        """How many readable images."""
        return int(self.sizes.sum())

    @property
    def room(self) -> int:
        """How many readable images the block that is growing still takes."""
        return self.block - int(self.sizes[-1] if len(self.sizes) else 0) or self.block

    def after(
        self,
        p_values: NDArray[np.float64],
        rejected: NDArray[np.bool_],
        unreadable: int,
        labels: Sequence[str],
        evidence: tuple[float, float],
    ) -> History:
        """The history after some more images, at most as many as there is room for."""
        if self.p_values is None or self.rejected is None or self.unreadable is None or self.evidence is None:
            so_far: list[NDArray[Any]] = []
        else:
            so_far = [self.p_values, self.rejected, self.unreadable, self.evidence]
        if not so_far:
            so_far = [np.zeros((1, BINS), np.int64), np.zeros(1, np.int64), np.zeros(1, np.int64), np.zeros((1, 2))]
        elif len(p_values) and so_far[0][-1].sum() >= self.block:
            so_far = [np.concatenate([each, np.zeros_like(each[-1:])]) for each in so_far]
        p, counts, lost, logs = (each.copy() for each in so_far)
        # a p-value of 1 is in the last twentieth, and each edge in the one that it ends
        place = np.clip(np.ceil(p_values * BINS * (1 - 1e-12)).astype(int) - 1, 0, BINS - 1)
        p[-1] += np.bincount(place, minlength=BINS)
        counts[-1] += int(rejected.sum())
        lost[-1] += unreadable
        logs[-1] = np.maximum(evidence, 0.0)
        made = replace(self, p_values=p, rejected=counts, unreadable=lost, evidence=logs)
        return made._with_classes(labels, rejected)._bounded()

    def _with_classes(self, labels: Sequence[str], rejected: NDArray[np.bool_]) -> History:
        if not any(labels):
            return self
        places = {name: place for place, name in enumerate(self.names)}
        counts = [list(row) for row in self.classes] if self.classes is not None else []
        for label, no in zip(labels, rejected.tolist(), strict=True):
            if not label:
                continue
            name = label if label in places or len(places) < CLASSES else OTHERS
            if name not in places:
                places[name] = len(counts)
                counts.append([0, 0])
            counts[places[name]][no] += 1
        return replace(self, names=tuple(places), classes=np.array(counts, np.int64))

    def _bounded(self) -> History:
        """With two blocks made one each time that there are too many."""
        assert self.p_values is not None
        assert self.rejected is not None
        assert self.unreadable is not None
        assert self.evidence is not None
        if len(self.p_values) <= MOST:
            return self
        starts = np.arange(0, len(self.p_values), 2)
        p, rejected, unreadable = (np.add.reduceat(x, starts) for x in (self.p_values, self.rejected, self.unreadable))
        last = np.minimum(starts + 1, len(self.p_values) - 1)
        return replace(
            self,
            block=2 * self.block,
            p_values=p,
            rejected=rejected,
            unreadable=unreadable,
            evidence=self.evidence[last],
        )

    def with_event(self, event: Event) -> History:
        """The history with one more thing that happened."""
        return replace(self, events=(*self.events, event))

    def __add__(self, other: History) -> History:
        """Two streams have no common time: by class only what both saw together, in one block."""
        if not other.seen and not other.events:
            return self
        if not self.seen and not self.events:
            return other
        names = tuple(dict.fromkeys((*self.names, *other.names)))
        counts = np.zeros((len(names), 2), np.int64)
        for each in (self, other):
            for name, row in zip(each.names, () if each.classes is None else each.classes, strict=True):
                counts[names.index(name)] += row
        return History(names=names, classes=counts if names else None)
