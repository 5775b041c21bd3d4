"""Unreadable: how many images of a stream could not be read, and whether that has jumped."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from numpy.typing import NDArray
from scipy.stats import beta, binom

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Value

Count = Annotated[int, AtLeast(0)]
WINDOW = 100  # images that are compared together with all before them


@dataclass(frozen=True, eq=False, repr=False)
class Unreadable(Value):
    """Images that could not be read: each window of a stream is compared with all that came before it.

    A window jumps where so many are lost that even the highest share that the images before allow explains it with
    probability delta / (k (k + 1)) only, k the number of the window: on a stream whose share does not rise, the
    chance that one ever does is at most delta.

    >>> Unreadable().after(np.arange(300) >= 250).jump
    201
    """

    rows: Count = 0  # before the window
    lost: Count = 0
    window: Count = 0
    window_lost: Count = 0
    # the number of the image, from 1, at which the first window that jumped begins
    jump: Annotated[int, AtLeast(1)] | None = None

    def __post_init__(self) -> None:
        """Refuse counts that no stream leads to."""
        if self.lost > self.rows or self.window_lost > self.window or self.window >= WINDOW + 1:
            raise InputError(f"of {self.rows} and {self.window} images, {self.lost} and {self.window_lost} are lost")
        if self.jump is not None and self.jump > self.seen:
            raise InputError(f"a jump at image {self.jump} of {self.seen}")

    @property
    def seen(self) -> int:
        """How many images, readable or not."""
        return self.rows + self.window

    @property
    def count(self) -> int:
        """How many of them could not be read."""
        return self.lost + self.window_lost

    def after(self, lost: NDArray[np.bool_], delta: float = 0.01) -> Unreadable:
        """The count after some more images, of which some are lost."""
        now, left = self, np.asarray(lost, bool)
        while len(left):
            part, left = left[: WINDOW - now.window], left[WINDOW - now.window :]
            now = replace(now, window=now.window + len(part), window_lost=now.window_lost + int(part.sum()))
            now = now._closed(delta) if now.window == WINDOW else now
        return now

    def _closed(self, delta: float) -> Unreadable:
        """The window joins the images before it."""
        jump = self.jump
        if jump is None and self.rows >= WINDOW and self.window_lost:
            k = self.rows // WINDOW
            chance = delta / (k * (k + 1)) / 2  # half for the share before, half for the window
            share = beta.ppf(1 - chance, self.lost + 1, self.rows - self.lost) if self.lost < self.rows else 1.0
            jump = self.rows + 1 if binom.sf(self.window_lost - 1, self.window, share) <= chance else None
        return Unreadable(self.rows + self.window, self.lost + self.window_lost, jump=jump)

    def __add__(self, other: Unreadable) -> Unreadable:
        """Two streams as one; a jump of either stays one."""
        jumps = [each.jump for each in (self, other) if each.jump is not None]
        return Unreadable(self.seen + other.seen, self.count + other.count, jump=min(jumps, default=None))

    def lines(self) -> list[str]:
        """What people want to know; nothing where all could be read."""
        if not self.count:
            return []
        said = [f"{self.count} of {self.seen} image{'' if self.seen == 1 else 's'} could not be read"]
        if self.jump is not None:
            said += [
                f"WARNING: from image {self.jump} on many more of them than before; look where they come from: such "
                "an image is neither accepted nor rejected, and no test sees it"
            ]
        return said
