"""Images that are drawn or made from others: noise, the paper's surrogate for OOD data, and scrambled ID images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import PIL.Image
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import compute_fingerprint
from oodshape.images.decode.read import to_mode
from oodshape.images.identity import Keys, draw_keys, from_numbers
from oodshape.images.sources.image_set import ImageSet, find_identities

KINDS = ("gaussian", "uniform")


@dataclass(frozen=True)
class NoiseSet:
    """n images of 32 x 32 pixels drawn on their own: Gaussian (mean 127.5, std 255) or uniform on [0, 255].

    Values are rounded and clipped to 0..255. Image i depends on the seed and i alone, so nothing is stored.

    >>> NoiseSet("uniform", 2)[1].shape
    (32, 32, 3)
    """

    name: str
    n: int = 50_000
    seed: int = 0
    side: int = 32

    def __post_init__(self) -> None:
        """Refuse unknown noise."""
        if self.name not in KINDS:
            raise InputError(f"noise must be one of {', '.join(KINDS)}, got {self.name!r}")

    @property
    def labels(self) -> NDArray[np.int64]:
        """No image has a class."""
        return np.full(self.n, -1)

    @property
    def fingerprint(self) -> str:
        """A hash of what the images are drawn from."""
        return compute_fingerprint(repr(self))

    @property
    def identities(self) -> Keys:
        """[N]: which image each is: what it is drawn from, and its number."""
        return from_numbers(self.n, f"{self.name} {self.seed} {self.side}")

    def __len__(self) -> int:
        """The number of images."""
        return self.n

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """[32, 32, 3] uint8."""
        if not 0 <= index < self.n:
            raise IndexError(index)
        return draw_pixels(self.name, np.random.default_rng([self.seed, index]), (self.side, self.side, 3))


def draw_pixels(
    kind: str, rng: np.random.Generator | np.random.RandomState, shape: tuple[int, ...]
) -> NDArray[np.uint8]:
    """Pixels drawn on their own: "gaussian" (mean 127.5, std 255) or uniform on [0, 255], rounded and clipped."""
    values = rng.normal(127.5, 255, shape) if kind == "gaussian" else rng.uniform(0, 255, shape)
    return np.asarray(np.rint(values.clip(0, 255)), np.uint8)


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Scrambled:
    """Phase-scrambled images: the Fourier amplitudes of an ID image, its phases plus those of one white-noise image.

    All channels get the same noise, so that colours are kept; the mean is kept. Such an image has the spectrum of a
    natural image and no content.

    >>> from oodshape.images.datasets.digits import load_digits_sets
    >>> Scrambled(load_digits_sets()["test"])[0].shape
    (16, 16)

    Args:
        base: The ID images.
        seed: Seed of the noise.
    """

    name: ClassVar[str] = "scrambled"

    base: ImageSet
    seed: int = 0

    @cached_property
    def labels(self) -> NDArray[np.int64]:
        """[N]: -1, for these images belong to no class."""
        return np.full(len(self), -1, np.int64)

    @property
    def fingerprint(self) -> str:
        """A hash of the kind, the seed and the ID set's fingerprint."""
        return compute_fingerprint(self.name, str(self.seed), self.base.fingerprint)

    @property
    def identities(self) -> Keys:
        """[N]: which image each is: the kind and the seed, and the ID image it is made from."""
        return draw_keys(find_identities(self.base), self.seed, self.name)

    def __len__(self) -> int:
        """The number of images."""
        return len(self.base)

    def __getitem__(self, index: int) -> NDArray[np.uint8]:
        """An image as an array, rounded and clipped to 0..255."""
        if not 0 <= index < len(self):
            raise IndexError(f"{self.name} has {len(self)} images, there is no number {index}")
        made = scramble(_pixels(self.base[index]), draw_phases(int(find_identities(self.base)[index]), self.seed))
        image: NDArray[np.uint8] = np.clip(np.rint(made), 0, 255).astype(np.uint8)
        return image


def draw_phases(which: int, seed: int) -> np.random.RandomState:
    """The random numbers that belong to an image."""
    # RandomState, because numpy promises that its numbers never change
    return np.random.RandomState([seed, which >> 32, which & 0xFFFFFFFF])


def scramble(image: Floats, rng: np.random.RandomState) -> Floats:
    """[H, W(, channels)]: the image with other phases, before rounding and clipping."""
    size = image.shape[:2]
    noise = np.fft.rfft2(rng.standard_normal(size))
    turn = noise / np.abs(noise)
    turn[0, 0] = 1.0  # the mean
    spectrum = np.fft.rfft2(image, axes=(0, 1)) * (turn if image.ndim == 2 else turn[..., None])
    return np.asarray(np.fft.irfft2(spectrum, s=size, axes=(0, 1)))


def _pixels(image: Any) -> Floats:
    """[H, W] or [H, W, channels] numbers of an image of any kind."""
    if isinstance(image, PIL.Image.Image):
        image = to_mode(image, "L" if image.mode in ("L", "1") else "RGB")
    return np.asarray(image, np.float64)


NOISE_IMAGES, COLOURS = 64, 62  # of each kind of noise; constant images besides black and white
WEAK = (64, 32)  # standard deviations of weaker Gaussian noise


def draw_noise(height: int, width: int, channels: int, seed: int = 0, *, weak: bool = False) -> NDArray[np.uint8]:
    """[128, H, W, C]: Gaussian and uniform noise, 64 images each, the same on every machine.

    With `weak`, they are four times as many, and 64 images of Gaussian noise with each of two smaller standard
    deviations follow: [640, H, W, C].
    """
    shape = NOISE_IMAGES, height, width, channels
    made = []
    for kind in KINDS:
        # RandomState, because numpy guarantees that its numbers never change
        rng = np.random.RandomState(seed)
        made += [draw_pixels(kind, rng, shape) for _ in range(4 if weak else 1)]
    for std in WEAK if weak else ():
        made.append(np.random.RandomState([seed, std]).normal(127.5, std, shape).clip(0, 255).astype(np.uint8))
    return np.concatenate(made)


def draw_constants(height: int, width: int, channels: int) -> NDArray[np.uint8]:
    """[64, H, W, C]: a black image, a white one, and 62 of one random colour each."""
    colours = np.random.RandomState(0).randint(0, 256, (COLOURS, channels))
    values = np.concatenate([np.zeros((1, channels)), np.full((1, channels), 255), colours]).astype(np.uint8)
    return np.tile(values[:, None, None], (1, height, width, 1))


def draw_lattice(height: int, width: int, channels: int) -> NDArray[np.uint8]:
    """[K, H, W, C]: constant images of all colours on a lattice with 8 values per channel (256 for one channel).

    With more channels than 3, they are 512 random ones of these colours.

    >>> len(draw_lattice(1, 1, 3)), draw_lattice(1, 1, 1)[-1].item()
    (512, 255)
    """
    values = np.linspace(0, 255, 256 if channels == 1 else 8).astype(np.uint8)
    if channels > 3:
        colours = values[np.random.RandomState(1).randint(0, len(values), (len(values) ** 3, channels))]
    else:
        colours = np.stack(np.meshgrid(*[values] * channels), axis=-1).reshape(-1, channels)
    return np.tile(colours[:, None, None], (1, height, width, 1))
