"""Limits on the memory that one input file may need.

A file of a few hundred bytes can need gigabytes: an image of many equal pixels, a thin one whose shorter side is
enlarged, an archive of zeros. The cost of a file follows from its first bytes, and is checked before the rest is read.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, ClassVar
from zipfile import ZipFile

import PIL.Image
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import read_npz, reading
from oodshape.core.text import parse_count, parse_settings

RATIO = 8  # times its size on disk that any file may take: real data sets and weights stay below
PLAIN = 4  # bytes a pixel that most decoders take
ENVIRONMENT = "OODSHAPE_LIMITS"  # the limits of processes that set none
ALLOWED = 5  # of such bytes: a picture whose decoder takes more may have fewer pixels
BUDGET = 3 << 26  # bytes of large images that are decoded at the same time, where there are several


@dataclass(frozen=True)
class Limits:
    """Limits on the size of images and of decompressed files; a file over a limit is treated as unreadable.

    `Limits(pixels=200_000_000).use()` sets them for this process. The environment variable OODSHAPE_LIMITS, such as
    `pixels=200_000_000,aspect=50`, sets them at the start.

    >>> Limits().pixels, Limits().aspect, Limits().inflated
    (50331648, 100, 268435456)

    Args:
        pixels: Largest width times height, before and after resizing.
        aspect: Largest ratio of the longer to the shorter side.
        inflated: Most bytes that a compressed file may expand to; 8 times its size on disk is always allowed.
    """

    pixels: int = 3 << 24  # width times height, as it is and resized: 8192 x 6144, the cameras of 50 million
    aspect: int = 100  # the longer side over the shorter one
    inflated: int = 1 << 28  # bytes; a file may always take RATIO times its size on disk

    _now: ClassVar[Limits]

    def __post_init__(self) -> None:
        for field in fields(self):
            if not getattr(self, field.name) >= 1:
                raise InputError(f"the limit of {field.name} must be at least 1, got {getattr(self, field.name)}")

    @classmethod
    def parse(cls, text: str) -> Limits:
        """Read limits from a text; limits that it does not name keep their defaults.

        Args:
            text: Such as `pixels=200M,aspect=50`.

        Returns:
            The limits.

        Raises:
            InputError: If a name or value is unknown.

        >>> Limits.parse("aspect=50")
        Limits(pixels=50331648, aspect=50, inflated=268435456)
        """
        kinds = {field.name: parse_count for field in fields(cls)}
        expected = "limits are pixels=N, aspect=N, inflated=N, or some of them, such as pixels=200M,aspect=50"
        return cls(**parse_settings(text.split(","), kinds, expected))

    @classmethod
    def from_environment(cls) -> Limits:
        """Read limits from the environment variable OODSHAPE_LIMITS.

        Returns:
            The limits, or the defaults.

        Raises:
            InputError: If the variable cannot be read.
        """
        try:
            return cls.parse(os.environ.get(ENVIRONMENT, ""))
        except InputError as error:
            raise InputError(f"the environment variable {ENVIRONMENT}: {error}") from None

    @staticmethod
    def now() -> Limits:
        """Return the limits of this process.

        Returns:
            The limits.
        """
        return Limits._now

    def use(self) -> Limits:
        """Apply these limits in this process from now on.

        Returns:
            The limits that applied before.
        """
        before, Limits._now = Limits._now, self
        own = PIL.Image.MAX_IMAGE_PIXELS
        if own is not None and self.pixels > own:
            PIL.Image.MAX_IMAGE_PIXELS = self.pixels  # Pillow's own limit would refuse what was asked for
        return before

    @property
    def words(self) -> tuple[str, ...]:
        """The limits that differ from the defaults, as text; empty for the defaults."""
        return () if self == Limits() else (repr(self),)

    def refusal(self, width: int, height: int, kind: str = "it", cost: int = PLAIN) -> str:
        """Explain why an image of this size is not decoded.

        Args:
            width: Width in pixels.
            height: Height in pixels.
            kind: Subject of the sentence.
            cost: Bytes per pixel that the decoder needs.

        Returns:
            The reason, or an empty string if the image is within the limits.

        >>> Limits().refusal(60_000, 1)
        'is 60000 x 1 pixels, more than 100 times as long as wide (the limit of aspect)'
        """
        short, long = sorted((width, height))
        if long > self.aspect * short:
            return f"is {width} x {height} pixels, more than {self.aspect} times as long as wide (the limit of aspect)"
        most = min(self.pixels, self.pixels * ALLOWED // cost)
        if width * height > most:
            why = "" if most == self.pixels else f" for {kind}, whose decoder takes {cost} bytes for each"
            return f"is {width} x {height} pixels, more than {most:,} (the limit of pixels{why})"
        return ""

    def check_inflated(self, path: object, inflated: int, stored: int, *, copies: int = 1) -> None:
        """Refuse a compressed file that would need too much memory.

        Args:
            path: The file, for the message.
            inflated: Its size after decompression, in bytes.
            stored: Its size on disk, in bytes.
            copies: How often its reader holds the data in memory.

        Raises:
            InputError: If it is over the limit.
        """
        most = max(self.inflated // copies, RATIO * stored)
        if inflated > most:
            raise InputError(
                f"{path} has {stored:,} bytes and inflates to {inflated:,} or more, over the limit of {most:,}; "
                f"where it can be trusted, raise the limit: --limits inflated=N, {ENVIRONMENT}=inflated=N, or "
                "Limits(inflated=N).use()"
            )


Limits._now = Limits()
Limits.from_environment().use()


def read_limited_npz(path: str | Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an .npz file by name, if their total size is within the limit."""
    path = Path(path)
    with reading(path, "it must be an .npz file of numpy"):
        with ZipFile(path) as archive:
            inflated = sum(entry.file_size for entry in archive.infolist())
        Limits.now().check_inflated(path, inflated, path.stat().st_size)
    return read_npz(path)


class _Turns:
    """Serialises large images: those decoded at the same time stay below the budget, or there is only one."""

    def __init__(self) -> None:
        self._used, self._free = 0, threading.Condition()
        self._mine = threading.local()

    @contextmanager
    def taking(self) -> Iterator[None]:
        """Within this block `wait` waits; what it got is given back at the end."""
        self._mine.taken = 0
        try:
            yield
        finally:
            taken = self._mine.taken
            self._mine.taken = None
            if taken:
                with self._free:
                    self._used -= taken
                    self._free.notify_all()

    def wait(self, size: int) -> None:
        """Wait until so many bytes fit into the budget together with those of other threads."""
        if getattr(self._mine, "taken", None) != 0:
            return  # nobody would give it back, or it has been waited for
        with self._free:
            self._free.wait_for(lambda: self._used == 0 or self._used + size <= BUDGET)
            self._used += size
        self._mine.taken = size


TURNS = _Turns()
