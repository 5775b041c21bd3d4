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
PAUSE = 30.0  # seconds between two lines where there is no terminal
_running: list[Progress] = []  # the display that is on the screen, of which there can be one


@contextmanager
def progress_bar(text: str, total: int | None, show: bool | None = None, unit: str = "images") -> Iterator[Report]:
    """A function `report(done, text=...)` behind a bar with its speed and the time left, on stderr.

    A total of None is one that nobody knows. Without a terminal, work that takes long says a line every `PAUSE`
    seconds; with show=False the function does nothing.
    """
    if show is False:
        yield _nothing
        return
    if not sys.stderr.isatty():
        yield _lines(text, total, unit)
        return
    with _display() as bar:
        task = bar.add_task(text, total=total, unit=unit)

        def report(done: int, text: str | None = None) -> None:
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


@contextmanager
def _display() -> Iterator[Progress]:
    """The display that is running, or a new one until the block ends."""
    if _running:
        yield _running[-1]
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            speed = task.finished_speed or task.speed
            return Text("" if speed is None else f"{speed:.{0 if speed >= 10 else 1}f} {task.fields['unit']}/s")

    words = TextColumn("{task.description}", markup=False)
    columns = (words, BarColumn(), MofNCompleteColumn(), Speed(), TimeLeft())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, redirect_stdout=False) as bar:
        _running.append(bar)
        try:
            yield bar
        finally:
            _running.remove(bar)


def _lines(text: str, total: int | None, unit: str) -> Report:
    """A report that writes a line where the last one, or the beginning, is long ago."""
    last = time.monotonic()

    def report(done: int, text: str = text) -> None:
        nonlocal last
        if time.monotonic() - last >= PAUSE:
            last = time.monotonic()
            sys.stderr.write(f"{text}: {done:,}{'' if total is None else f' of {total:,}'} {unit}\n")
            sys.stderr.flush()

    return report


def _nothing(*_: Any, **__: Any) -> None:
    pass
