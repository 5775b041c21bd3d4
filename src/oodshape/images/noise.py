"""Noise images: the paper's surrogates for OOD data."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.fingerprint import fingerprint_of
from oodshape.images.identity import Keys, numbered

KINDS = ("gaussian", "uniform")


@dataclass(frozen=True)
class NoiseSet:
    """n images of 32 x 32 pixels drawn on their own: Gaussian (mean 127.5, std 255) or uniform on [0, 255].

    Values are rounded and clipped to 0..255; with `truncated` they are cut to whole numbers, and uniform ones stop at
    254, as the authors' code of OptFS draws them (`astype("uint8")`, `randint(0, 255)`). Image i depends on the seed
    and i alone, so nothing is stored.

    >>> NoiseSet("uniform", 2)[1].shape
    (32, 32, 3)
    """

    name: str
    n: int = 50_000
    seed: int = 0
    side: int = 32
    truncated: bool = field(default=False, repr=False)

    def __post_init__(self) -> None:
        """Refuse unknown noise and empty sets."""
        if self.name not in KINDS:
            raise InputError(f"noise must be one of {', '.join(KINDS)}, got {self.name!r}")
        if self.n < 1:
            raise InputError(f"the number of noise images must be at least 1, got {self.n}")

    @property
    def labels(self) -> NDArray[np.int64]:
        """No image has a class."""
        return np.full(self.n, -1)

    @property
    def fingerprint(self) -> str:
        """A hash of what the images are drawn from."""
        return fingerprint_of(repr(self) + self._way)

    @property
    def identities(self) -> Keys:
        """[N]: which image each is: what it is drawn from, and its number."""
        return numbered(self.n, f"{self.name} {self.seed} {self.side}{self._way}")

    @property
    def _way(self) -> str:
        """Nothing for plain noise, whose caches are older than the other kind."""
        return " truncated" if self.truncated else ""

    def __len__(self) -> int:
        """The number of images."""
        return self.n

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """[32, 32, 3] uint8."""
        if not 0 <= index < self.n:
            raise IndexError(index)
        shape = (self.side, self.side, 3)
        return drawn(self.name, np.random.default_rng([self.seed, index]), shape, truncated=self.truncated)


def drawn(
    kind: str, rng: np.random.Generator | np.random.RandomState, shape: tuple[int, ...], *, truncated: bool = False
) -> NDArray[np.uint8]:
    """Pixels drawn on their own: "gaussian" (mean 127.5, std 255) or uniform on [0, 255], clipped.

    They are rounded, or with `truncated` cut to whole numbers: a uniform one is then 0..254, each as likely.
    """
    values = rng.normal(127.5, 255, shape) if kind == "gaussian" else rng.uniform(0, 255, shape)
    whole = np.floor if truncated else np.rint
    return np.asarray(whole(values.clip(0, 255)), np.uint8)
