"""Download a published file: mirrors in order, resumed where a transfer broke, verified before it is used.

An archive is unpacked into the folder that readers expect: within limits, atomically, nothing outside of it.
"""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.client import HTTPException, HTTPMessage
from pathlib import Path, PurePosixPath
from typing import IO, Any, NamedTuple, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import oodshape
from oodshape.core.errors import InputError
from oodshape.core.files import NO_ROOM, one_line, reading, temporary_file, writing
from oodshape.core.machine import OFFLINE, is_offline
from oodshape.images import identity
from oodshape.images.datasets.download_sources import DOWNLOADS, Download, hash_file
from oodshape.images.decode.limits import Limits

CHUNK = 1 << 20
MEMBERS = 2_000_000  # files of one archive; the largest published one has 330,000
TIMEOUT = 60  # seconds without a byte
ATTEMPTS = 5  # at one address, as long as each transfers something
FULL = 64  # hex digits of a sha256
Report = Callable[[int], None]


class _Refused(Exception):
    """What an address offers cannot be the file: another try at this address would not help."""


def download(source: Download, folder: Path, report: Report = lambda done: None, *, unverified: bool = False) -> Path:
    """Return the verified file of a source in a folder, downloaded unless it is there.

    A transfer that broke is kept as `FILE.part` and resumed by the next call if a checksum will tell whether the
    result is right. A file that is not the published one is deleted.
    """
    path, part = folder / source.file, folder / f"{source.file}.part"
    if path.is_file():
        _check_file(source, path, f"delete {path} and get it again")
        return path
    if is_offline():
        raise InputError(f"{source.file} is not at {path}, and --offline or {OFFLINE} forbids downloads")
    if not source.is_verified and not unverified:
        raise InputError(
            f"{source.file} is not downloaded: its checksum is not published; --unverified downloads it all the same"
        )
    reasons = []
    for address in Download.direct(source.addresses):
        try:
            _fetch(address, part, source, report)
            _check_file(source, part, "try again later")
            part.replace(path)
            return path
        except InputError as error:  # what was written is of no use
            part.unlink(missing_ok=True)
            reasons.append(f"{address}: {error}")
        except (_Refused, OSError, HTTPException) as error:
            if isinstance(error, OSError) and error.errno in NO_ROOM:
                part.unlink(missing_ok=True)
                raise  # another mirror would not help
            reason = error.reason if isinstance(error, URLError) else error
            reasons.append(f"{address}: {one_line(reason) or type(error).__name__}")
    if not source.is_verified or not _size(part):
        part.unlink(missing_ok=True)
    more = "; run the same command again to resume" if part.exists() else ""
    raise InputError(f"{source.file} cannot be downloaded ({'; '.join(reasons)}){more}")


def obtain(source: Download, root: Path, report: Report = lambda done: None, *, unverified: bool = False) -> str:
    """Put a published file, or what its archive holds, at its place below `root` unless it is there.

    Returns a line with the digest of a file that could not be verified in full. An archive that a user put into the
    folder `downloads` is used and kept; one that was downloaded is deleted once it is unpacked.
    """
    target = root / source.to
    folder = root / DOWNLOADS if source.is_archive else target.parent
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        with temporary_file(folder / source.file):  # a lock: a second process waits, and finds the work done
            if target.exists():
                return ""
            is_given = (folder / source.file).is_file()
            path = download(source, folder, report, unverified=unverified)
            is_known = bool(source.md5) or len(source.sha256) == FULL
            note = "" if is_known else f"{source.file}: sha256 {hash_file(path)} (not published)"
            if source.is_archive:
                unpack(path, source, root)
                if not is_given:
                    path.unlink()
    return note


def _check_file(source: Download, path: Path, advice: str) -> None:
    """Refuse a file that is a web page, or not the published one."""
    with path.open("rb") as file:
        if re.match(rb"\s*<(!doctype|html|\?xml)", file.read(200), re.IGNORECASE):
            raise InputError(f"{path.name} is a web page, such as one about a quota or a login; {advice}")
    if difference := source.difference(path):
        raise InputError(f"{path.name} is not the published file: {difference}; {advice}")


def _fetch(address: str, part: Path, source: Download, report: Report) -> None:
    """Download from one address; a transfer that breaks is resumed while each attempt transfers something."""
    if not source.is_verified:
        part.unlink(missing_ok=True)  # it may be of another version of the file
    for attempt in range(ATTEMPTS):
        before = _size(part)
        try:
            return _transfer(address, part, source, report)
        except HTTPError as error:
            error.close()
            if error.code != 416 or not before:
                raise _Refused(f"HTTP {error.code} {error.reason}") from None
            part.unlink()  # it is longer than the file
        except (OSError, HTTPException):
            if _size(part) <= before or attempt == ATTEMPTS - 1:
                raise


def _transfer(address: str, part: Path, source: Download, report: Report) -> None:
    _check_address(address, source)
    done = _size(part)
    headers = {"User-Agent": f"oodshape/{oodshape.__version__}", **({"Range": f"bytes={done}-"} if done else {})}
    with build_opener(_Redirects(source)).open(Request(address, headers=headers), timeout=TIMEOUT) as reply:
        if done and not str(reply.headers["Content-Range"]).startswith(f"bytes {done}-"):
            done = 0  # this server sends the whole file
        if reply.headers.get_content_type() == "text/html":
            raise _Refused("the answer is a web page, such as one about a quota or a login, not the file")
        length = reply.length or 0
        if source.is_exact and length and done + length != source.bytes:
            raise _Refused(f"the file has {done + length:,} bytes there, the published one {source.bytes:,}")
        expected = done + length
        with part.open("ab" if done else "wb") as file:
            while chunk := reply.read(CHUNK):
                done += len(chunk)
                if source.is_exact and done > source.bytes:
                    raise InputError(f"the file has more than the published {source.bytes:,} bytes")
                file.write(chunk)
                report(done)
        if length and done < expected:
            raise URLError(f"the transfer ended after {done:,} of {expected:,} bytes")


def _check_address(address: str, source: Download) -> None:
    scheme = urlsplit(address).scheme
    if scheme != "https" and not (scheme == "http" and source.is_verified):
        raise _Refused(f"{scheme}:// is only used where a checksum is known")


class _Redirects(HTTPRedirectHandler):
    """Follow redirects only to addresses that the source may be downloaded from."""

    def __init__(self, source: Download) -> None:
        self.source = source

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: HTTPMessage, newurl: str
    ) -> Any:
        try:
            _check_address(newurl, self.source)
        except _Refused:
            fp.close()
            raise
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else 0


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
