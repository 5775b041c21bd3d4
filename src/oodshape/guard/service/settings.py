"""What a service was told: the file, its limits, whether it watches; handed to every worker as text."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields

from oodshape.core.errors import InputError

VARIABLE = "OODSHAPE_SERVE"  # of the environment: workers are processes of their own
MEBIBYTE = 1 << 20


@dataclass(frozen=True)
class Settings:
    """All options of `oodshape serve`.

    >>> Settings.parse(Settings("guarded.onnx", workers=2).text).workers
    2
    """

    file: str
    host: str = "127.0.0.1"
    port: int = 8000
    workers: int = 1
    threads: int = 1  # of each worker: images that are judged at the same time
    watch: bool = False
    state: str = ""  # where the watch is kept between runs
    delta: float = 0.01  # the chance of a false alarm, shared among the workers
    max_bytes: int = 32 * MEBIBYTE  # of a request
    max_images: int = 32
    max_pixels: int = 3 << 24
    max_aspect: int = 100
    max_seconds: float = 30.0  # for a request to arrive, and again for its answer
    max_requests: int = 64  # in one worker's hands at the same time
    folder: str = ""  # where the workers count

    def __post_init__(self) -> None:
        """Refuse what no service could keep."""
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, (int, float)) and field.name not in ("watch", "port") and not value > 0:
                raise InputError(f"{field.name} must be above 0, got {value:g}")
        if self.state and not self.watch:
            raise InputError("--state keeps what --watch saw: give both, or neither")

    @property
    def text(self) -> str:
        """The settings for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def parse(cls, text: str) -> Settings:
        """What `text` gave."""
        return cls(**json.loads(text))
