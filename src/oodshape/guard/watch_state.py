"""Kept: the watch that a command works on, alone or one of several streams, and the file that keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from oodshape.core.errors import InputError
from oodshape.guard.p_value_stream import Judged
from oodshape.guard.place import Place
from oodshape.guard.streams import Streams, load_state
from oodshape.guard.watch import Watch

Promise = tuple[float, int]  # alpha, the size of the calibration


def promise(detector: str | Path | None, alpha: float | None, n_calibration: int | None) -> Promise | None:
    """What a calibrated detector file promises, or the two numbers that it would know; None where neither is given."""
    if detector is not None:
        from oodshape.methods.detector import Detector  # needs torch, which a service does without

        known = Detector.load(detector)
        if known.calibration is None or known.alpha is None:
            raise InputError(f"{detector} promises nothing yet: calibrate it on held-out images")
        return known.alpha, len(known.calibration)
    return None if alpha is None or n_calibration is None else (alpha, n_calibration)


class Kept:
    """One watch at work; it is written after each block of rows."""

    def __init__(self, state: Watch | Streams, path: Path | None, stream: str | None) -> None:
        """Use `opened`."""
        self.state, self.path, self.stream = state, path, stream

    @classmethod
    def opened(cls, path: Path | None, stream: str | None, told: Promise | None, delta: float) -> Kept:
        """Go on from the file, or begin."""
        if path is not None and path.is_file():
            state = load_state(path)
        elif told is None:
            raise InputError("watch must know the promise: give --detector FILE, or --alpha and --n-calibration")
        else:
            how = Watch if stream is None else Streams
            state = how.begin(alpha=told[0], n_calibration=told[1], delta=delta)
        if isinstance(state, Watch) and stream is not None:
            raise InputError(f"{path} holds one stream without a name: leave --stream out, or give another --state")
        if isinstance(state, Streams):
            if stream is None and len(state.names) == 1:
                stream = state.names[0]
            state = state if stream is None else state.of(stream)
        return cls(state, path, stream)

    @property
    def watch(self) -> Watch:
        """The watch of this stream."""
        if isinstance(self.state, Watch):
            return self.state
        if self.stream is None:
            raise InputError(f"{self.path} holds {len(self.state.names)} streams: say which with --stream")
        return self.state[self.stream]

    @property
    def named(self) -> dict[str, Watch]:
        """All watches by their names."""
        if isinstance(self.state, Watch):
            return {"": self.state}
        return dict(zip(self.state.names, self.state.watches, strict=True))

    @property
    def alarm(self) -> bool:
        """Whether any stream disagrees with the promise."""
        return self.state.alarm

    def take(self, rows: Sequence[Judged], place: Place | None) -> None:
        """Look at some more rows."""
        self._put(self.watch.after([p for p, _ in rows], place, labels=[label for _, label in rows]))

    def reset(self, told: Promise | None) -> None:
        """Begin the tests of this stream anew, with a new promise where one is given."""
        alpha, n_calibration = told or (None, None)
        self._put(self.watch.reset(alpha=alpha, n_calibration=n_calibration))

    def _put(self, watch: Watch) -> None:
        self.state = watch if isinstance(self.state, Watch) else self.state.put(self.stream or "", watch)
        if self.path is not None:
            self.state.save(self.path)

    def __str__(self) -> str:
        """What was seen."""
        return str(self.state)
