"""Settings: all options of `oodshape serve`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from typing import Any

from oodshape.core.errors import InputError
from oodshape.core.text import parse_count, parse_settings
from oodshape.images.decode.limits import Limits


@dataclass(frozen=True)
class Settings:
    """All options of `oodshape serve`.

    >>> Settings("guarded.onnx", workers=2).max_images
    32
    """

    file: str
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1  # scoring processes
    provider: str = "CPU"  # of onnxruntime
    watch: bool = False
    state: str = ""  # where the watch is kept between runs
    delta: float = 0.01  # the probability of a false alarm
    token: str = ""  # empty: requests need none
    max_bytes: int = 32 << 20  # of a request
    max_images: int = 32  # in a request
    max_seconds: float = 30.0  # for a request to arrive, and again for its answer
    max_requests: int = 64  # that arrive at the same time, and again that wait or are scored
    max_per_address: int | None = None  # requests of one client address at the same time
    limits: Limits = field(default_factory=Limits)  # of one image

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            if isinstance(value, (int, float)) and each.name not in ("watch", "port") and not value > 0:
                raise InputError(f"{each.name} must be above 0, got {value:g}")
        if self.max_seconds < 0.1:
            raise InputError(f"max_seconds must be at least 0.1, got {self.max_seconds:g}")
        if self.state and not self.watch:
            raise InputError("--state stores what --watch saw: give both, or neither")


MAXIMA: dict[str, Callable[[str], Any]] = {
    "bytes": parse_count,
    "images": int,
    "seconds": float,
    "requests": int,
    "per_address": int,
}


def parse_maxima(text: str) -> dict[str, Any]:
    """The settings in a text such as `seconds=20,requests=4`.

    >>> parse_maxima("seconds=2.5,requests=1_000")
    {'max_seconds': 2.5, 'max_requests': 1000}
    """
    expected = f"--max takes {', '.join(f'{name}=N' for name in MAXIMA)}, such as seconds=20,requests=4"
    found = parse_settings(text.split(","), MAXIMA, expected)
    return {f"max_{name}": value for name, value in found.items()}
