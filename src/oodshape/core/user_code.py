"""Import what a user names: functions that build networks, and methods of their own."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from traceback import extract_tb
from types import CodeType
from typing import Any

from oodshape.core.errors import InputError


def import_object(spec: str, forms: str) -> Any:
    """Import "package.module:name", from the working directory too; `forms` names other inputs for messages."""
    module, _, name = spec.partition(":")
    with working_directory():
        try:
            return attrgetter(name)(import_module(module))
        except ModuleNotFoundError as error:
            found = error.name != module.split(".")[0]
            where = "" if found else " (add its folder to PYTHONPATH, or run the command there)"
            raise InputError(f"cannot import {spec!r}: {error}{where}; {forms}") from None
        except (ImportError, AttributeError, ValueError) as error:
            raise InputError(f"cannot import {spec!r}: {error}; {forms}") from None
        except Exception as error:  # the user's own code, while it is imported
            raise InputError(f"{module} failed: {locate_failure(error)}") from error


def locate_failure(error: Exception, code: CodeType | None = None) -> str:
    """Describe an error in a user's code and its location: in the function's own file, or else the innermost frame."""
    frames = [each for each in extract_tb(error.__traceback__)[1:] if not each.filename.startswith("<frozen ")]
    own = [each for each in frames if code is not None and each.filename == code.co_filename]
    place = "".join(f" ({Path(each.filename).name}:{each.lineno})" for each in (own or frames)[-1:])
    return f"{type(error).__name__}: {' '.join(str(error).split())}{place}"


@contextmanager
def working_directory() -> Iterator[None]:
    """Make modules of the working directory importable, before any others, as with `python -m`."""
    here = os.getcwd()
    sys.path.insert(0, here)
    try:
        yield
    finally:
        sys.path.remove(here)
