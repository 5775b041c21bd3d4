"""The image files below a folder, and the files that a glob matches, in order."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator

from oodshape.core.errors import InputError
from oodshape.images.walking import no_image, walked


def below(folder: str) -> Iterator[tuple[str, int]]:
    """The images below a folder, one by one."""
    found = False
    for place, _, files in walked(folder):
        for file in files:
            found = True
            yield os.path.join(folder, place, file), -1
    if not found:
        raise no_image(folder)


def matched(pattern: str) -> Iterator[tuple[str, int]]:
    """The files that a glob matches, sorted, each once."""
    matches = sorted({path for path in _globbed(pattern) if os.path.isfile(path)})
    if not matches:
        raise InputError(f"no file matches {pattern}")
    return ((path, -1) for path in matches)


def _globbed(pattern: str) -> Iterator[str]:
    """The paths that a glob matches. `**` goes below folders as a walk does: links back are not followed for ever."""
    before, stars, after = _at_stars(pattern)
    if not stars:
        yield from glob.iglob(pattern)
        return
    for root in glob.iglob(before) if before else [""]:
        if os.path.isdir(root or os.curdir):
            for folder, _, _ in walked(root or os.curdir):
                yield from _globbed(os.path.join(glob.escape(os.path.join(root, folder)), after or "*"))


def _at_stars(pattern: str) -> tuple[str, str, str]:
    """What stands before and after the first `**` that is a part of a path by itself."""
    parts = pattern.split(os.sep)
    if "**" not in parts:
        return pattern, "", ""
    at = parts.index("**")
    return os.sep.join([*parts[:at], ""]) if at else "", "**", os.sep.join(parts[at + 1 :])
