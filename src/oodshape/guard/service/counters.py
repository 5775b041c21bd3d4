"""Counters that all workers share, and the text in which Prometheus reads them.

Each worker counts in a small file of its own, mapped into its memory; whoever is asked adds them up. A file outlives
its worker, and the next one goes on with it: no count is lost when a process ends.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from filelock import lock_descriptor
from numpy.typing import NDArray

STATUSES = (200, 400, 408, 413, 415, 500, 503)
EDGES = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, math.inf)  # seconds
PLAIN = ("images", "unreadable", "seconds")
WATCHED = ("images", "rejections", "p_values", "alarm")  # of one worker's watch
NAMES = [*PLAIN, *map(str, STATUSES), *map(str, EDGES), *(f"watch {name}" for name in WATCHED)]
SLOTS = 1024


class Counters:
    """One worker's counts, and those of all."""

    def __init__(self, folder: str | Path, classes: Sequence[str | int]) -> None:
        """Take the first file that no living worker counts in."""
        self.folder, self.classes = Path(folder), classes
        self.slot, self._file = self._taken()
        self._place = {name: place for place, name in enumerate(NAMES)}
        size = 8 * (len(NAMES) + len(classes))
        if self._file.seek(0, 2) < size:
            self._file.truncate(size)
        self._own: NDArray[np.float64] = np.memmap(self._file, np.float64, "r+", shape=(len(NAMES) + len(classes),))

    def _taken(self) -> tuple[int, Any]:
        for slot in range(SLOTS):
            file = (self.folder / f"{slot:04}.counts").open("a+b")
            if lock_descriptor(file.fileno(), blocking=False):
                return slot, file
            file.close()
        raise RuntimeError(f"more than {SLOTS} workers count in {self.folder}")

    def add(self, name: str, value: float = 1.0) -> None:
        """Count."""
        self._own[self._place[name]] += value

    def answered(self, status: int, seconds: float) -> None:
        """Count a request and how long it took."""
        self.add(str(status if status in STATUSES else 500))
        self.add("seconds", seconds)
        self.add(str(next(edge for edge in EDGES if seconds <= edge)))

    def rejected(self, place: int) -> None:
        """Count a rejected image of the class with this number."""
        self._own[len(NAMES) + place] += 1

    def set_watch(self, **values: float) -> None:
        """What this worker's watch says now."""
        for name, value in values.items():
            self._own[self._place[f"watch {name}"]] = value

    def _all(self) -> dict[int, NDArray[np.float64]]:
        size = len(self._own)
        found = {}
        for path in sorted(self.folder.glob("*.counts")):
            values = np.fromfile(path, np.float64)
            if len(values) == size:  # one that was just made is empty
                found[int(path.stem)] = values
        return found

    def text(self, *, watched: bool) -> str:
        """Everything in the format that Prometheus reads."""
        every = self._all()
        return "".join(f"{line}\n" for line in self._lines(sum(every.values()), every, watched))

    def _lines(self, total: Any, every: dict[int, NDArray[np.float64]], watched: bool) -> Iterator[str]:
        def of(name: str) -> str:
            return _number(total[self._place[name]])

        yield from _head("oodshape_requests_total", "counter", "Requests for predictions by their status.")
        yield from (f'oodshape_requests_total{{status="{status}"}} {of(str(status))}' for status in STATUSES)
        yield from _head("oodshape_images_total", "counter", "Images that were judged.")
        yield f"oodshape_images_total {of('images')}"
        yield from _head("oodshape_unreadable_total", "counter", "Images that could not be read.")
        yield f"oodshape_unreadable_total {of('unreadable')}"
        yield from _head("oodshape_rejected_total", "counter", "Rejected images by the class that the network gave.")
        for name, count in zip(self.classes, total[len(NAMES) :], strict=True):
            if count:
                yield f'oodshape_rejected_total{{class="{_escaped(name)}"}} {_number(count)}'
        yield from _head("oodshape_request_seconds", "histogram", "From the first byte of a request to its answer.")
        so_far = 0.0
        for edge in EDGES:
            so_far += total[self._place[str(edge)]]
            bound = "+Inf" if math.isinf(edge) else f"{edge:g}"
            yield f'oodshape_request_seconds_bucket{{le="{bound}"}} {_number(so_far)}'
        yield f"oodshape_request_seconds_sum {of('seconds')}"
        yield f"oodshape_request_seconds_count {_number(so_far)}"
        if watched:
            yield from self._watch_lines(every)

    def _watch_lines(self, every: dict[int, NDArray[np.float64]]) -> Iterator[str]:
        for name, what in (
            ("images", "Images that the watch has seen."),
            ("alarm", "1 where the stream does not agree with the promise any more."),
        ):
            yield from _head(f"oodshape_watch_{name}", "gauge", what)
            for slot, values in every.items():
                yield f'oodshape_watch_{name}{{worker="{slot}"}} {_number(values[self._place[f"watch {name}"]])}'
        yield from _head(
            "oodshape_watch_evidence", "gauge", "Evidence against the promise; the alarm comes at 4 / delta."
        )
        for slot, values in every.items():
            for test in ("rejections", "p_values"):
                value = _number(values[self._place[f"watch {test}"]])
                yield f'oodshape_watch_evidence{{test="{test}",worker="{slot}"}} {value}'


def _head(name: str, kind: str, what: str) -> tuple[str, str]:
    return f"# HELP {name} {what}", f"# TYPE {name} {kind}"


def _escaped(name: str | int) -> str:
    return str(name).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def _number(value: float) -> str:
    return str(int(value)) if float(value).is_integer() else repr(float(value))
