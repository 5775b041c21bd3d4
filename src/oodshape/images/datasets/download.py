"""Download a published file: mirrors in order, resumed where a transfer broke, verified before it is used."""

from __future__ import annotations

import re
from collections.abc import Callable
from http.client import HTTPException, HTTPMessage
from pathlib import Path
from typing import IO, Any
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

import oodshape
from oodshape.core.errors import InputError
from oodshape.core.files import NO_ROOM, one_line, temporary_file, writing
from oodshape.core.machine import OFFLINE, is_offline
from oodshape.images.datasets.download_sources import DOWNLOADS, Download, hash_file
from oodshape.images.datasets.unpack import unpack

CHUNK = 1 << 20
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
