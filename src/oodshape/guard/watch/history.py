"""History: what a watched stream looked like over time, by block of images and by class, in bounded memory."""

from __future__ import annotations

from dataclasses import field, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Sizes, Value

BLOCK = 16  # readable images of the first blocks: a short stream has a curve, too
BINS = 20  # of p-values
MOST = 120  # blocks; then two become one
MOST_EVENTS = 1000
Count = Annotated[int, AtLeast(0)]
Ints = NDArray[np.int64]


def _zeros(*shape: int) -> Any:
    """One block without images."""
    return field(default_factory=lambda: np.zeros(shape, np.int64))


class Event(Value):
    """Something that happened after so many readable images: an alarm, or a reset."""

    kind: Literal["alarm", "reset"]
    image: Count
    began: Annotated[int, AtLeast(1)] | None = None  # near which the change began, by the estimate


class History(Value):
    """Counts per block of readable images (the last block is still open), and events.

    >>> History().after(np.array([0.01, 0.5]), np.array([True, False]), 1).rejected
    array([1])
    """

    block: Annotated[int, AtLeast(1)] = BLOCK
    p_values: Annotated[Ints, Sizes("T B"), AtLeast(0)] = _zeros(1, BINS)  # by twentieths
    rejected: Annotated[Ints, Sizes("T"), AtLeast(0)] = _zeros(1)
    unreadable: Annotated[Ints, Sizes("T"), AtLeast(0)] = _zeros(1)
    events: tuple[Event, ...] = ()

    def __post_init__(self) -> None:
        if self.p_values.shape[1] != BINS:
            raise InputError("a history has other columns than it must have")
        if len(self.events) > MOST_EVENTS:
            raise InputError(f"a history has at most {MOST_EVENTS:,} events, got {len(self.events):,}")
        if (self.rejected > self.sizes).any():
            raise InputError("a history rejects more images than it has")
        if (self.sizes > self.block).any():
            raise InputError(f"a history has {int(self.sizes.max())} images in a block of {self.block}")

    @property
    def sizes(self) -> Ints:
        """[T]: how many readable images each block has."""
        return np.asarray(self.p_values.sum(axis=1))

    @property
    def seen(self) -> int:
        return int(self.sizes.sum())

    @property
    def room(self) -> int:
        """How many readable images the block that is growing still takes."""
        return self.block - int(self.sizes[-1]) or self.block

    def after(self, p_values: NDArray[np.float64], rejected: NDArray[np.bool_], unreadable: int) -> History:
        """The history after some more images, at most as many as there is room for."""
        blocks: list[Ints] = [self.p_values, self.rejected, self.unreadable]
        if len(p_values) and self.sizes[-1] >= self.block:
            blocks = [np.concatenate([each, np.zeros_like(each[-1:])]) for each in blocks]
        p, counts, lost = (each.copy() for each in blocks)
        # a p-value of 1 is in the last twentieth, and each edge in the one that it ends
        place = np.clip(np.ceil(p_values * BINS * (1 - 1e-12)).astype(int) - 1, 0, BINS - 1)
        p[-1] += np.bincount(place, minlength=BINS)
        counts[-1] += int(rejected.sum())
        lost[-1] += unreadable
        return replace(self, p_values=p, rejected=counts, unreadable=lost)._bounded()

    def _bounded(self) -> History:
        """With two blocks made one each time that there are too many."""
        if len(self.p_values) <= MOST:
            return self
        starts = np.arange(0, len(self.p_values), 2)
        p, rejected, unreadable = (np.add.reduceat(x, starts) for x in (self.p_values, self.rejected, self.unreadable))
        return replace(self, block=2 * self.block, p_values=p, rejected=rejected, unreadable=unreadable)

    def with_event(self, event: Event) -> History:
        """The history with one more thing that happened; the oldest is dropped where there are too many."""
        return replace(self, events=(*self.events[1 - MOST_EVENTS :], event))
