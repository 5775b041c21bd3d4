"""Streams: several watches in one state (camera A, camera B), with the chance of a false alarm shared among them."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from oodshape.core import files
from oodshape.core.errors import InputError, check_fraction
from oodshape.core.values import Value, encode, load_values
from oodshape.guard.watch import Watch


@dataclass(frozen=True, eq=False, repr=False)
class Streams(Value):
    """Watches by name, in the order in which they came.

    The k-th has the share delta / (k (k + 1)) of the chance delta that one of them ever raises a false alarm: these
    add up to delta however many come, so nobody has to say beforehand how many there will be.

    >>> both = Streams.begin(alpha=0.05, n_calibration=999).of("camera A").of("camera B")
    >>> [round(watch.delta, 5) for watch in both.watches]
    [0.005, 0.00167]
    """

    alpha: float
    n_calibration: int
    delta: float
    names: tuple[str, ...] = ()
    watches: tuple[Watch, ...] = ()

    def __post_init__(self) -> None:
        """Refuse names that do not fit, and shares that are not theirs."""
        check_fraction("delta", self.delta)
        if len(self.names) != len(self.watches) or len(set(self.names)) != len(self.names) or "" in self.names:
            raise InputError(f"{len(self.watches)} streams cannot be called {', '.join(map(repr, self.names))}")
        for k, watch in enumerate(self.watches, 1):
            if abs(watch.delta - self._share(k)) > 1e-9:
                raise InputError(f"stream {k} has the share {watch.delta:g} of delta, not {self._share(k):g}")

    @classmethod
    def begin(cls, *, alpha: float, n_calibration: int, delta: float = 0.01) -> Streams:
        """No stream yet, each to come with a threshold for alpha, calibrated on n_calibration images."""
        return cls(alpha, n_calibration, delta)

    def _share(self, k: int) -> float:
        return self.delta / (k * (k + 1))

    def of(self, name: str) -> Streams:
        """The same with a stream of this name, begun where there is none."""
        if name in self.names:
            return self
        share = self._share(len(self.names) + 1)
        begun = Watch.begin(alpha=self.alpha, n_calibration=self.n_calibration, delta=share)
        return replace(self, names=(*self.names, name), watches=(*self.watches, begun))

    def __getitem__(self, name: str) -> Watch:
        """The watch of a stream."""
        if name not in self.names:
            raise InputError(f"there is no stream {name!r}; there are {', '.join(map(repr, self.names)) or 'none'}")
        return self.watches[self.names.index(name)]

    def put(self, name: str, watch: Watch) -> Streams:
        """The same with another watch of a stream."""
        self[name]
        return replace(
            self, watches=tuple(watch if x == name else y for x, y in zip(self.names, self.watches, strict=True))
        )

    @property
    def alarm(self) -> bool:
        """Whether any of them disagrees with the promise."""
        return any(watch.alarm for watch in self.watches)

    def save(self, path: str | Path) -> None:
        """Write the state to one safetensors file."""
        tensors: dict[str, NDArray[Any]] = {}
        value = encode(self, tensors, "streams")
        files.save(path, "watch", {"value": json.dumps(value)}, tensors)

    def __str__(self) -> str:
        """What each saw."""
        return "\n\n".join(f"{name}\n{watch}" for name, watch in zip(self.names, self.watches, strict=True))


def load_state(path: str | Path) -> Watch | Streams:
    """The state of one stream or of several."""
    [value] = load_values(path, "watch", "value")
    if not isinstance(value, (Watch, Streams)):
        raise InputError(f"{path} holds {type(value).__name__}, not a watch; {files.WAY_OUT['watch']}")
    return value
