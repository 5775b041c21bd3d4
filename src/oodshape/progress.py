"""A progress bar on a terminal, and nothing anywhere else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

Report = Callable[..., None]


@contextmanager
def progress_bar(text: str, total: int | None, show: bool | None = None) -> Iterator[Report]:
    """A function `report(done, text=...)` behind a bar with images/s and time left, on stderr.

    A total of None is one that nobody knows. Without a terminal, or with show=False, the function does nothing.
    """
    if show is False or not sys.stderr.isatty():
        yield _nothing
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn
    from rich.progress import TimeRemainingColumn as TimeLeft
    from rich.text import Text

    class Speed(ProgressColumn):
        def render(self, task: Task) -> Text:
            return Text(f"{task.finished_speed or task.speed or 0:.0f} images/s")

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), Speed(), TimeLeft())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(text, total=total)

        def report(done: int, text: str | None = None) -> None:
            bar.update(task, completed=done, description=text)

        yield report


def _nothing(*_: Any, **__: Any) -> None:
    pass
