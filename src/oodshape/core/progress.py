"""Progress bars on a terminal, an occasional line anywhere else; nested bars share one display."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from oodshape.core.text import printable

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[..., None]
T = TypeVar("T")
FIRST, PAUSE = 5.0, 30.0  # seconds before the first line and between two lines, where there is no terminal
_silent = False
_running: list[Progress] = []  # the display on the screen: rich allows one at a time


@contextmanager
def progress_bar(text: str, total: int | None, show: bool | None = None, unit: str = "images") -> Iterator[Report]:
    """Yield a function `report(done, text=...)` that updates a bar on stderr with speed and remaining time.

    The total may be None (unknown). Without a terminal, a line is written after `FIRST` seconds and then every `PAUSE`
    seconds. With show=False, or after `set_silent`, nothing is shown.
    """
    if show is False or _silent:
        yield lambda *_, **__: None
        return
    text = printable(text)
    if not sys.stderr.isatty():
        yield _line_reporter(text, total, unit)
        return
    with _display() as bar:
        task = bar.add_task(text, total=total, unit=unit)

        def report(done: int, text: str | None = None) -> None:
            bar.update(task, completed=done, description=text)

        try:
            yield report
        finally:
            bar.refresh()  # or the last state is never shown
            bar.remove_task(task)


def announce(text: str) -> None:
    """Write a line on stderr, such as about a download, unless `set_silent` forbids it."""
    if not _silent:
        sys.stderr.write(printable(text) + "\n")


def set_silent(silent: bool) -> None:
    """Show no progress and announce nothing from now on, or do so again."""
    global _silent
    _silent = silent


def track_named(items: Iterable[tuple[str, T]], text: str, show: bool | None, unit: str) -> Iterator[tuple[str, T]]:
    """Yield the named items behind a bar that shows the name of the current one."""
    every = list(items)
    with progress_bar(text, len(every), show, unit) as report:
        for done, (name, item) in enumerate(every):
            report(done, text=printable(f"{text}: {name}"))
            yield name, item


@contextmanager
def _display() -> Iterator[Progress]:
    """The running display, or a new one until the block ends."""
    if _running:
        yield _running[-1]
        return
    from rich import progress as rich
    from rich.console import Console

    class Speed(rich.TaskProgressColumn):
        def render(self, task: rich.Task) -> Any:
            return self.render_speed(task.finished_speed or task.speed)

    text, unit = rich.TextColumn("{task.description}", markup=False), rich.TextColumn("{task.fields[unit]}")
    columns = (text, rich.BarColumn(), rich.MofNCompleteColumn(), unit, Speed(""), rich.TimeRemainingColumn())
    with rich.Progress(*columns, console=Console(stderr=True), transient=True, redirect_stdout=False) as bar:
        _running.append(bar)
        try:
            yield bar
        finally:
            _running.remove(bar)


def _line_reporter(text: str, total: int | None, unit: str) -> Report:
    start = time.monotonic()
    due = start + FIRST
    before: int | None = None  # done by an earlier run, which says nothing about the speed

    def report(done: int, text: str = text) -> None:
        nonlocal before, due
        now = time.monotonic()
        before = done if before is None else before
        if now < due:
            return
        due = now + PAUSE
        parts = [f"{done:,}{'' if total is None else f' of {total:,}'} {unit}"]
        if done > before and unit != "steps":  # which do not take the same time
            speed = (done - before) / (now - start)
            parts.append(f"{speed:.3g} {unit}/s")
            parts += [] if total is None else [f"{timedelta(seconds=round((total - done) / speed))} left"]
        sys.stderr.write(f"{text}: {', '.join(parts)}\n")
        sys.stderr.flush()

    return report
