"""Surrogates: images that no classifier should trust, made from ID images or drawn pixel by pixel.

Each is an image set over an ID set, as long as it is and in its order. An image depends on the seed, its number
and the ID image alone, so that sets can be cut, cached and read by several processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from oodshape.core.errors import InputError, check_fraction
from oodshape.images.decode import in_mode
from oodshape.images.image_set import ImageSet, fingerprint_of

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Surrogate:
    """A set of images made from those of another set."""

    base: ImageSet
    seed: int = 0

    def __post_init__(self) -> None:
        """Refuse a seed that is none."""
        if not 0 <= self.seed < 2**32:
            raise InputError(f"seed must lie in 0..2^32 - 1, got {self.seed}")

    @property
    def name(self) -> str:
        """The kind, for tables and messages."""
        return type(self).__name__.lower()

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """[N]: -1, for these images belong to no class."""
        return np.full(len(self), -1, np.int64)

    @property
    def fingerprint(self) -> str:
        """A hash of the kind, its settings and the ID set's fingerprint."""
        settings = {name: value for name, value in vars(self).items() if name not in ("base", "labels")}
        return fingerprint_of(type(self).__name__, repr(sorted(settings.items())), self.base.fingerprint)

    def __len__(self) -> int:
        """The number of images."""
        return len(self.base)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """An image as an array, rounded and clipped to 0..255."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} images, there is no number {index}")
        # RandomState, because numpy promises that its numbers never change
        made = self.made(_pixels(self.base[index]), np.random.RandomState([self.seed, index]))
        image: NDArray[np.uint8] = np.clip(np.rint(made), 0, 255).astype(np.uint8)
        return image

    def made(self, image: Floats, rng: np.random.RandomState) -> Floats:
        """[H, W(, channels)] before rounding and clipping."""
        raise NotImplementedError


@dataclass(frozen=True)
class Scrambled(Surrogate):
    """The Fourier amplitudes of the ID image, its phases plus those of one white-noise image.

    All channels get the same noise, so that colours stay; the mean is kept. Such an image has the whole spectrum
    of a natural one and no content.
    """

    def made(self, image: Floats, rng: np.random.RandomState) -> Floats:
        """The scrambled image."""
        size = image.shape[:2]
        noise = np.fft.rfft2(rng.standard_normal(size))
        turn = noise / np.abs(noise)
        turn[0, 0] = 1.0  # the mean
        spectrum = np.fft.rfft2(image, axes=(0, 1)) * (turn if image.ndim == 2 else turn[..., None])
        return np.asarray(np.fft.irfft2(spectrum, s=size, axes=(0, 1)))


@dataclass(frozen=True)
class LowPassed(Surrogate):
    """The ID image behind a Gaussian blur of standard deviation `sigma` times the shorter side."""

    sigma: float = 0.1

    def __post_init__(self) -> None:
        """Refuse no blur."""
        super().__post_init__()
        check_fraction("sigma", self.sigma, one=True)

    def made(self, image: Floats, rng: np.random.RandomState) -> Floats:
        """The blurred image; beyond its edges it is mirrored."""
        height, width = image.shape[:2]
        reach = self.sigma * min(height, width)
        rows, columns = _blur(height, reach), _blur(width, reach)
        return np.asarray(np.einsum("ab,bc...,dc->ad...", rows, image, columns, optimize=True))


@dataclass(frozen=True)
class Gaussian(Surrogate):
    """Pixels drawn from a normal distribution of mean 127.5 and standard deviation 255 (the paper's)."""

    size: tuple[int, int] | None = (32, 32)  # height, width; None: the ID image's

    def made(self, image: Floats, rng: np.random.RandomState) -> Floats:
        """The noise."""
        return np.asarray(rng.normal(127.5, 255, (self.size or image.shape[:2]) + image.shape[2:]))


@dataclass(frozen=True)
class Uniform(Surrogate):
    """Pixels drawn from a uniform distribution on [0, 255] (the paper's)."""

    size: tuple[int, int] | None = (32, 32)  # height, width; None: the ID image's

    def made(self, image: Floats, rng: np.random.RandomState) -> Floats:
        """The noise."""
        return np.asarray(rng.uniform(0, 255, (self.size or image.shape[:2]) + image.shape[2:]))


SURROGATES: dict[str, type[Surrogate]] = {
    "scrambled": Scrambled,
    "lowpassed": LowPassed,
    "gaussian": Gaussian,
    "uniform": Uniform,
}


def _pixels(image: Any) -> Floats:
    """[H, W] or [H, W, channels] numbers of an image of any kind."""
    if isinstance(image, PIL.Image.Image):
        image = in_mode(image, "L" if image.mode in ("L", "1") else "RGB")
    return np.asarray(image, np.float64)


def _blur(side: int, reach: float) -> Floats:
    """[side, side] weights of a Gaussian blur along one axis; every row adds up to 1."""
    places = np.arange(side)
    copies = np.arange(-3, 4)[:, None, None] * 2 * side  # enough: reach is at most one side
    apart = places[:, None] - places[None, :] + copies
    mirrored = places[:, None] + places[None, :] + 1 + copies
    weights = (np.exp(-0.5 * (apart / reach) ** 2) + np.exp(-0.5 * (mirrored / reach) ** 2)).sum(axis=0)
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))
