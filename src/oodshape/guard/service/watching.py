"""A watch inside the service: it sees every p-value, says a shift once, and is kept between runs."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from pathlib import Path

from oodshape.core.errors import InputError
from oodshape.guard.guarded_file import GuardedFile
from oodshape.guard.service.counters import Counters
from oodshape.guard.service.logs import say
from oodshape.guard.service.settings import Settings
from oodshape.guard.verdict import Verdict
from oodshape.guard.watch import Watch

PAUSE = 30.0  # seconds between two times that the state is written
TOGETHER, LONGEST = 64, 1.0  # images that are looked at together, seconds that they wait at the most


class Watching:
    """The watch of one worker; it is only touched by the thread of the event loop."""

    def __init__(self, guarded: GuardedFile, settings: Settings, counters: Counters) -> None:
        """Go on from the state, or begin."""
        self.counters, self.path, self._saved = counters, _own(settings, counters.slot), time.monotonic()
        # each worker sees a stream of its own: the chance of a false alarm is shared among them
        begun = Watch.begin(
            alpha=guarded.alpha or 0.0, n_calibration=len(guarded.calibration), delta=settings.delta / settings.workers
        )
        self.watch = Watch.load(self.path) if self.path is not None and self.path.is_file() else begun
        for name in ("alpha", "n_calibration", "delta"):
            had, wanted = getattr(self.watch, name), getattr(begun, name)
            if not math.isclose(had, wanted, rel_tol=1e-6):
                raise InputError(
                    f"{self.path} is the state of a watch with {name} = {had:g}, this one has {wanted:g}; "
                    "give another --state to begin anew"
                )
        self._waiting: list[Verdict | InputError] = []
        self._looked = time.monotonic()
        self._show()

    def see(self, answers: Sequence[Verdict | InputError]) -> None:
        """Take some more images; they are looked at together, when they are enough or a second has passed."""
        self._waiting += answers
        if len(self._waiting) >= TOGETHER or time.monotonic() - self._looked > LONGEST:
            self.look()

    def look(self) -> None:
        """Look at all that were taken."""
        before, taken = self.watch, self._waiting
        self._waiting, self._looked = [], time.monotonic()
        if not taken:
            return
        read = [each if isinstance(each, Verdict) else None for each in taken]
        self.watch = before.after(
            [each.p_value if each else None for each in read], labels=[str(each.label) if each else "" for each in read]
        )
        self._show()
        if self.watch.alarm and not before.alarm:
            first = self.watch.first
            say("shift", level=logging.WARNING, image=first.alarm, began_near=first.since, rate=first.rate)
        if time.monotonic() - self._saved > PAUSE:
            self.save()

    def save(self) -> None:
        """Write the state, where it is to be kept."""
        self.look()
        self._saved = time.monotonic()
        if self.path is not None:
            self.watch.save(self.path)

    def _show(self) -> None:
        watch = self.watch
        self.counters.set_watch(
            images=watch.seen,
            rejections=math.exp(min(watch.rejection.highest, 700)),
            p_values=math.exp(min(watch.middle.highest, 700)),
            alarm=watch.alarm,
        )


def check_watchable(guarded: GuardedFile) -> None:
    """Refuse a file whose p-values are not those of one calibration."""
    if guarded.alpha is None or not guarded.has_p_values:
        raise InputError(f"{guarded.path} cannot be watched: it was exported without the scores of its calibration")
    if guarded.per_class:
        raise InputError(
            f"{guarded.path} cannot be watched: it has a threshold per class, each with a calibration of its own; "
            "calibrate with one for all (oodshape calibrate --one-threshold) and export again"
        )


def _own(settings: Settings, slot: int) -> Path | None:
    """The worker's own file: watch.safetensors, or watch.0.safetensors and so on of several."""
    if not settings.state:
        return None
    path = Path(settings.state)
    return path if settings.workers == 1 else path.with_name(f"{path.stem}.{slot}{path.suffix}")
