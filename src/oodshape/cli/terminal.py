"""What commands do around their work: refuse files that cannot be written, print, show warnings."""

from __future__ import annotations

import json
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import typer

from oodshape.core.progress import set_silent
from oodshape.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console

UNREADABLE = 3  # the exit status where some images could not be read


def console() -> Console:
    """The terminal, or what stands in its place; what it would obey in the text of tables is escaped."""
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class Escaping(Console):
        def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
            for each in super().render(renderable, options):
                yield each if each.control else Segment(printable(each.text, keep="\n"), each.style)

    return Escaping(highlight=False, soft_wrap=False)


_quiet = False


def set_quiet(quiet: bool) -> None:
    """Print nothing but results and errors from now on."""
    global _quiet
    _quiet = quiet
    set_silent(quiet)


def is_quiet() -> bool:
    """Whether `oodshape --quiet` was given."""
    return _quiet


def say(*lines: str, err: bool = False) -> None:
    """Print lines for people, whatever the names of files in them hold, unless `--quiet` was given."""
    for line in lines if not is_quiet() else ():
        typer.echo(printable(line), err=err)


def show_json(value: Any) -> None:
    """Print a result as one line of JSON."""
    typer.echo(json.dumps(value))


def show_line(text: str) -> None:
    """Print an error or a warning in one line on stderr, whatever the names of files in it hold."""
    sys.stderr.write(printable(text) + "\n")


def command_line() -> str:
    """The command as a user would type it again."""
    return shlex.join(["oodshape", *sys.argv[1:]])


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Warnings as one line each on stderr, as they come."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        warnings.simplefilter("always", UserWarning)
        yield


def _show(message: Warning | str, *_: Any, **__: Any) -> None:
    show_line(f"warning: {message}")
