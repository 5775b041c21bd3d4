"""Unpack a downloaded archive into the folder that readers expect: within limits, atomically, nothing outside of it."""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, NamedTuple, cast

from oodshape.core.errors import InputError
from oodshape.core.files import reading, writing
from oodshape.images import identity
from oodshape.images.datasets.download_sources import Download
from oodshape.images.decode.limits import Limits

MEMBERS = 2_000_000  # files of one archive; the largest published one has 330,000
CHUNK = 1 << 20


class Member(NamedTuple):
    """A regular file in an archive."""

    path: PurePosixPath
    size: int
    open: Callable[[], IO[bytes] | None]


def unpack(archive: Path, source: Download, root: Path) -> None:
    """Unpack an archive into the folder `root / source.to`, which appears only when it is complete.

    Links and special files are left out. A path that leads out of the archive, or content over the limits, is an error.
    """
    target, making = root / source.to, archive.with_name(f"{archive.name}.unpacking")
    shutil.rmtree(making, ignore_errors=True)  # of a run that was killed
    try:
        with reading(archive, "delete it and get it again"), writing(target):
            making.mkdir()
            wanted = _choose(archive, source)
            with _members(archive) as members:
                for member in members:
                    if member.path in wanted:
                        _write(member, making / wanted[member.path])
            target.parent.mkdir(parents=True, exist_ok=True)
            making.rename(target)
    except tarfile.TarError as error:
        raise InputError(f"{archive} is damaged ({error}); delete it and get it again") from None
    finally:
        shutil.rmtree(making, ignore_errors=True)


def _choose(archive: Path, source: Download) -> dict[PurePosixPath, PurePosixPath]:
    """The members to unpack, each with its path in the new folder."""
    paths, total = list[PurePosixPath](), 0
    with _members(archive) as members:
        for member in members:
            if member.path.is_absolute() or ".." in member.path.parts or re.search(r"[\\:\0]", str(member.path)):
                raise InputError(f"it holds a file with the path {str(member.path)!r}, which is not inside a folder")
            total += member.size
            Limits.now().check_inflated(archive, total, archive.stat().st_size)
            if len(paths) >= MEMBERS:
                raise InputError(f"it holds more than {MEMBERS:,} files")
            if not any(part.startswith(".") for part in member.path.parts):
                paths.append(member.path)
    inside = PurePosixPath(source.inside)
    tops = {path.parts[0] for path in paths}
    if not source.inside and tops == {Path(source.to).name} and all(len(path.parts) > 1 for path in paths):
        inside = PurePosixPath(*tops)
    found = {path: path.relative_to(inside) for path in paths if path.is_relative_to(inside) and path != inside}
    if not found:
        raise InputError(f"it holds no file below {source.inside!r}; it is not the published archive")
    if source.pick:
        names = sorted(found)
        keys = identity.from_paths(found[name].name for name in names)
        found = {names[row]: found[names[row]] for row in identity.smallest(keys, source.pick, 0, "sample").tolist()}
    return found


def _write(member: Member, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with cast(IO[bytes], member.open()) as file, path.open("xb") as copy:  # a regular file can always be opened
        shutil.copyfileobj(file, copy, CHUNK)


@contextmanager
def _members(archive: Path) -> Iterator[Iterator[Member]]:
    """The regular files of a tar or zip file, in their order."""
    if zipfile.is_zipfile(archive):
        with zipfile.ZipFile(archive) as packed:
            entries = [each for each in packed.infolist() if not each.is_dir() and each.external_attr >> 28 in (0, 8)]
            yield (Member(PurePosixPath(each.filename), each.file_size, partial(packed.open, each)) for each in entries)
    else:
        with tarfile.open(archive, "r|*") as stream:
            files = (each for each in stream if each.isreg())
            yield (Member(PurePosixPath(each.name), each.size, partial(stream.extractfile, each)) for each in files)
