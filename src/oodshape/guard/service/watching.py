"""The watch inside the service: it sees every p-value, logs a shift once, and is saved on a timer."""

from __future__ import annotations

import asyncio
import logging
import math
from pathlib import Path
from typing import Any

from oodshape.core.errors import InputError
from oodshape.guard.service.logs import log_event
from oodshape.guard.service.metrics import Metrics
from oodshape.guard.service.settings import Settings
from oodshape.guard.watch.watch import Watch

LOOK_SECONDS = 1.0  # between two looks at the images that were scored meanwhile
LOOKS_PER_SAVE = 5


class Watching:
    """The watch of a service. Only the event loop's thread uses it."""

    def __init__(self, about: dict[str, Any], settings: Settings, metrics: Metrics) -> None:
        """Continue from the state, or start."""
        if about["per_class"]:
            raise InputError(
                f"{settings.file} cannot be watched: it has a threshold per class, each with its own calibration; "
                "calibrate with one for all (oodshape calibrate --one-threshold) and export again"
            )
        if not about["held_out"]:
            raise InputError(
                f"{settings.file} cannot be watched: it was calibrated on training images and has no guarantee; "
                "calibrate it on other images (oodshape calibrate FILE --images ...)"
            )
        self._path, self._metrics = Path(settings.state).resolve() if settings.state else None, metrics
        begun = Watch.begin(alpha=about["alpha"], n_calibration=about["calibration_images"], delta=settings.delta)
        self.watch = Watch.load(self._path) if self._path is not None and self._path.is_file() else begun
        for name in ("alpha", "n_calibration", "delta"):
            stored, wanted = getattr(self.watch, name), getattr(begun, name)
            if not math.isclose(stored, wanted, rel_tol=1e-6):
                raise InputError(
                    f"{self._path} is the state of a watch with {name} = {stored:g}, this one has {wanted:g}; "
                    "give another --state to start again"
                )
        self._saved: Watch | None = None  # an unused state is written too: a path that cannot be is known at the start
        self._new: list[dict[str, Any]] = []
        self._show()

    def add(self, rows: list[dict[str, Any]]) -> None:
        """Take the rows of an answer; `look` looks at them."""
        self._new += rows

    def look(self) -> None:
        """Test all rows that were added."""
        before, rows, self._new = self.watch, self._new, []
        if not rows:
            return
        self.watch = before.after(row.get("p_value") for row in rows)
        self._show()
        if self.watch.alarm and not before.alarm:
            first = self.watch.first
            log_event("shift", level=logging.WARNING, image=first.alarm, began_near=first.since, rate=first.rate)

    async def run(self) -> None:
        """Look and save for as long as the service runs; the state is written by a thread."""
        looks = 0
        while True:
            self.look()
            if looks % LOOKS_PER_SAVE == 0:
                await asyncio.to_thread(self.save)
            looks += 1
            await asyncio.sleep(LOOK_SECONDS)

    def save(self) -> None:
        """Write the state, if there is a new one; a failure is logged and counted."""
        watch = self.watch
        if self._path is None or watch is self._saved:
            return
        try:
            watch.save(self._path)
            self._saved = watch
        except (InputError, OSError) as error:
            self._metrics.save_failures.inc()
            log_event("watch not saved", level=logging.ERROR, error=str(error))

    def _show(self) -> None:
        watch, metrics = self.watch, self._metrics
        metrics.watch_images.set(watch.seen)
        metrics.watch_alarm.set(watch.alarm)
        metrics.watch_evidence.labels("rejections").set(math.exp(min(watch.rejection.highest, 700)))
        metrics.watch_evidence.labels("p_values").set(math.exp(min(watch.middle.highest, 700)))
