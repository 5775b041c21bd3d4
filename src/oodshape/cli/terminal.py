"""What commands do around their work: refuse files that cannot be written, print, show warnings."""

from __future__ import annotations

import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from oodshape.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

UNREADABLE = 3  # the exit status where some images could not be read


def console() -> Console:
    """The terminal, or what stands in its place."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def command_line() -> str:
    """The command as a user would type it again."""
    return shlex.join(["oodshape", *sys.argv[1:]])


def check_out(*files: Path | None) -> None:
    """Refuse a file that could not be written, before any work is done."""
    for file in files:
        if file is None:
            continue
        if file.exists() and not file.is_file():
            what = "a folder; name a file in it" if file.is_dir() else "no ordinary file; name another"
            raise InputError(f"cannot write {file}: it is {what}")
        if not file.parent.is_dir():
            raise InputError(f"cannot write {file}: the folder {file.parent} does not exist")
        try:
            with TemporaryFile(dir=file.parent):
                pass
        except OSError as error:
            raise InputError(f"cannot write {file}: {error.strerror}; choose another folder") from None


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Warnings as one line each on stderr, as they come."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        warnings.simplefilter("always", UserWarning)
        yield


def _show(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"warning: {message}\n")
