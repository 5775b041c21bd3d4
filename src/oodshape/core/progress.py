"""Progress bars on a terminal, a line now and then anywhere else; a bar inside another stands below it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from rich.progress import Progress

Report = Callable[..., None]
T = TypeVar("T")
FIRST, PAUSE = 5.0, 30.0  # seconds to the first line, and between two, where there is no terminal
AT_ONCE = 0.2  # seconds; what is done by then was done by an earlier run
_running: list[Progress] = []  # the display that is on the screen, of which there can be one


@contextmanager
def progress_bar(text: str, total: int | None, show: bool | None = None, unit: str = "images") -> Iterator[Report]:
    """A function `report(done, text=...)` behind a bar with its speed and the time left, on stderr.

    A total of None is one that nobody knows. Without a terminal, work that takes long says a line after `FIRST` seconds
    and then every `PAUSE`; with show=False the function does nothing.
    """
    if show is False:
        yield _nothing
        return
    if not sys.stderr.isatty():
        yield _lines(text, total, unit)
        return
    with _display() as bar:
        pace = Pace()
        task = bar.add_task(text, total=total, unit=unit, pace=pace)

        def report(done: int, text: str | None = None) -> None:
            pace.at(done)
            bar.update(task, completed=done, description=text)

        try:
            yield report
        finally:
            bar.refresh()  # the last state is seen
            bar.remove_task(task)


def tracked(items: Iterable[tuple[str, T]], text: str, show: bool | None, unit: str) -> Iterator[tuple[str, T]]:
    """The named items one by one behind a bar that says which one is at work."""
    every = list(items)
    with progress_bar(text, len(every), show, unit) as report:
        for done, (name, item) in enumerate(every):
            report(done, text=f"{text}: {name}")
            yield name, item


def counting(items: Iterable[T], text: str, total: int | None, show: bool | None, unit: str) -> Iterator[T]:
    """The items as they come, behind a bar that counts them."""
    with progress_bar(text, total, show, unit) as report:
        for done, item in enumerate(items, 1):
            yield item
            report(done)


class Pace:
    """How fast work goes, known from its first report on."""

    def __init__(self) -> None:
        """It starts now."""
        self.start = time.monotonic()
        self.before: int | None = None  # done by an earlier run
        self.done = 0
        self.last = self.start

    def at(self, done: int) -> None:
        """So much is done."""
        self.last = time.monotonic()
        if self.before is None:
            self.before = done if self.last - self.start < AT_ONCE else 0
        self.done = done

    @property
    def speed(self) -> float | None:
        """How much a second, None before anything is done."""
        work, spent = self.done - (self.before or 0), self.last - self.start
        return work / spent if work > 0 and spent > 0 else None

    def said(self, unit: str) -> str:
        """The speed in words, as seconds for one where these are many.

        >>> pace = Pace()
        >>> pace.start, pace.last, pace.before, pace.done = 0.0, 8.0, 0, 200
        >>> pace.said("images")
        '25 images/s'
        >>> pace.done = 2
        >>> pace.said("networks")
        '4 s each'
        """
        if self.speed is None:
            return ""
        if self.speed < 0.5:
            return f"{1 / self.speed:.0f} s each"
        return f"{self.speed:.{0 if self.speed >= 10 else 1}f} {unit}/s"

    def left(self, total: int | None) -> float | None:
        """The seconds that are left, None where nobody knows."""
        if total is None or self.speed is None:
            return None
        since = time.monotonic() - self.last
        return max(0.0, (total - self.done) / self.speed - since)


@contextmanager
def _display() -> Iterator[Progress]:
    """The display that is running, or a new one until the block ends."""
    if _running:
        yield _running[-1]
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(task.fields["pace"].said(task.fields["unit"]))

    class TimeLeft(ProgressColumn):
        def render(self, task: Task) -> Text:
            left = task.fields["pace"].left(None if task.total is None else int(task.total))
            return Text("" if left is None else f"{_clock(left)} left", style="cyan")

    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn(), Speed(), TimeLeft())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        _running.append(bar)
        try:
            yield bar
        finally:
            _running.remove(bar)


def _clock(seconds: float) -> str:
    """Minutes and seconds, hours where there are any.

    >>> _clock(7.6), _clock(75), _clock(3700)
    ('0:08', '1:15', '1:01:40')
    """
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def _lines(text: str, total: int | None, unit: str) -> Report:
    """A report that writes a line where the last one, or the beginning, is long ago."""
    pace = Pace()
    due = pace.start + FIRST

    def report(done: int, text: str = text) -> None:
        nonlocal due
        pace.at(done)
        if pace.last >= due:
            due = pace.last + PAUSE
            left = pace.left(total)
            parts = [f"{done:,}{'' if total is None else f' of {total:,}'} {unit}", pace.said(unit)]
            parts.append("" if left is None else f"{_clock(left)} left")
            sys.stderr.write(f"{text}: {', '.join(filter(None, parts))}\n")
            sys.stderr.flush()

    return report


def _nothing(*_: Any, **__: Any) -> None:
    pass
