"""Downloads against a server on this machine: each fault is one line, and leaves nothing that looks complete."""

from __future__ import annotations

import hashlib
import resource
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dataset_files import archive
from oodshape import InputError
from oodshape.images.datasets.download import obtain
from oodshape.images.datasets.download_sources import Download
from web_server import Offer, Server, serving

CONTENT = bytes(range(256)) * 4000
PAGE = b"<!DOCTYPE html><html>Google Drive - Quota exceeded</html>"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "OODSHAPE_OFFLINE"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    with serving() as made:
        yield made


@pytest.fixture
def secure(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """The same behind https, with a certificate that this process trusts."""
    if shutil.which("openssl") is None:
        pytest.skip("need openssl")
    folder = tmp_path_factory.mktemp("certificate")
    words = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost -addext"
    names = ["subjectAltName=DNS:localhost", "-keyout", "key.pem", "-out", "certificate.pem"]
    subprocess.run(["openssl", *words.split(), *names], cwd=folder, check=True, capture_output=True)
    both = folder / "both.pem"
    both.write_bytes((folder / "key.pem").read_bytes() + (folder / "certificate.pem").read_bytes())
    monkeypatch.setenv("SSL_CERT_FILE", str(folder / "certificate.pem"))
    with serving(both) as made:
        yield made


def source_of(
    content: bytes, *addresses: str, file: str = "set.bin", to: str = "sets/set.bin", **more: object
) -> Download:
    row = dict.fromkeys(("inside", "pick", "md5", "by_hand"), "")
    row |= {"folder": "data", "name": "set", "file": file, "to": to, "addresses": " ".join(addresses), "licence": "-"}
    row |= {"bytes": str(len(content)), "sha256": hashlib.sha256(content).hexdigest()}
    return replace(Download.parse(row), **more)


def left(root: Path) -> list[str]:
    return sorted(path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file())


def test_a_file_is_downloaded_once(server: Server, tmp_path: Path) -> None:
    server.offers["/set.bin"] = Offer(CONTENT)
    seen: list[int] = []
    source = source_of(CONTENT, f"{server.address}/set.bin")
    assert obtain(source, tmp_path, seen.append) == ""
    assert (tmp_path / "sets" / "set.bin").read_bytes() == CONTENT
    assert seen[-1] == len(CONTENT)
    obtain(source, tmp_path)
    assert len(server.asked) == 1
    assert left(tmp_path) == ["sets/set.bin"]


def test_mirrors_are_tried_in_order(server: Server, tmp_path: Path) -> None:
    server.offers = {"/page": Offer(PAGE, "text/html"), "/other": Offer(CONTENT[::-1]), "/good": Offer(CONTENT)}
    obtain(source_of(CONTENT, *(f"{server.address}/{name}" for name in ("gone", "page", "other", "good"))), tmp_path)
    assert [path for path, _ in server.asked] == ["/gone", "/page", "/other", "/good"]
    assert left(tmp_path) == ["sets/set.bin"]


@pytest.mark.parametrize(
    ("offer", "kept", "asked"),
    [
        (Offer(CONTENT, breaks=[1000, 2000]), b"", ["", "bytes=1000-", "bytes=3000-"]),
        (Offer(CONTENT, breaks=[1000], ranges=False), b"", ["", "bytes=1000-"]),
        (Offer(CONTENT), CONTENT + b"more", [f"bytes={len(CONTENT) + 4}-", ""]),  # a part that is too long
    ],
)
def test_a_broken_transfer_goes_on_where_it_stopped_or_starts_again(
    server: Server, tmp_path: Path, offer: Offer, kept: bytes, asked: list[str]
) -> None:
    (tmp_path / "sets").mkdir()
    if kept:
        (tmp_path / "sets" / "set.bin.part").write_bytes(kept)
    server.offers["/set.bin"] = offer
    obtain(source_of(CONTENT, f"{server.address}/set.bin"), tmp_path)
    assert [span for _, span in server.asked] == asked
    assert (tmp_path / "sets" / "set.bin").read_bytes() == CONTENT
    assert left(tmp_path) == ["sets/set.bin"]


def test_a_transfer_that_breaks_for_good_is_resumed_by_the_next_run(server: Server, tmp_path: Path) -> None:
    server.offers["/set.bin"] = Offer(CONTENT, breaks=[1000, 0])
    source = source_of(CONTENT, f"{server.address}/set.bin")
    with pytest.raises(InputError, match="after 1,000 of 1,024,000 bytes.*run the same command again to resume"):
        obtain(source, tmp_path)
    assert left(tmp_path) == ["sets/set.bin.part"]
    obtain(source, tmp_path)
    assert server.asked[-1] == ("/set.bin", "bytes=1000-")
    assert left(tmp_path) == ["sets/set.bin"]


@pytest.mark.parametrize(
    ("offer", "error"),
    [
        (Offer(PAGE, "text/html"), "the answer is a web page"),
        (Offer(PAGE.ljust(len(CONTENT)), "application/zip"), "is a web page"),
        (Offer(CONTENT[:-1]), "has 1,023,999 bytes there, the published one 1,024,000"),
        (Offer(CONTENT[::-1]), "its sha256 is .*, that of the published file"),
        (Offer(status=503), "HTTP 503"),
        (Offer(CONTENT[::-1], "a/b\r\nContent-Length: many"), "its sha256 is .*, that of the published file"),
        (Offer(to="http://localhost:9/set.bin"), "refused"),  # no network
        (Offer(to="ftp://localhost/set.bin"), "ftp:// is only used where a checksum is known"),
    ],
)
def test_what_is_not_the_file_is_one_line_and_leaves_nothing(
    server: Server, tmp_path: Path, offer: Offer, error: str
) -> None:
    server.offers["/set.bin"] = offer
    with pytest.raises(InputError, match=error) as caught:
        obtain(source_of(CONTENT, f"{server.address}/set.bin"), tmp_path)
    assert "\n" not in str(caught.value)
    assert f"{server.address}/set.bin" in str(caught.value)
    assert left(tmp_path) == []


def test_without_a_checksum_nothing_is_downloaded_by_default(secure: Server, server: Server, tmp_path: Path) -> None:
    secure.offers["/set.bin"] = server.offers["/set.bin"] = Offer(CONTENT)
    unknown = {"sha256": "", "bytes": 0, "is_exact": False}
    source = source_of(CONTENT, f"{secure.address}/set.bin", **unknown)
    with pytest.raises(InputError, match="its checksum is not published; --unverified"):
        obtain(source, tmp_path)
    plain = source_of(CONTENT, f"{server.address}/set.bin", **unknown)
    with pytest.raises(InputError, match="http:// is only used where a checksum is known"):
        obtain(plain, tmp_path, unverified=True)
    assert server.asked == secure.asked == []
    assert hashlib.sha256(CONTENT).hexdigest() in obtain(source, tmp_path, unverified=True)
    assert left(tmp_path) == ["sets/set.bin"]


def test_a_redirect_may_not_leave_https_without_a_checksum(secure: Server, server: Server, tmp_path: Path) -> None:
    secure.offers = {
        "/a": Offer(to=f"{server.address}/set.bin"),
        "/b": Offer(to="/set.bin"),
        "/set.bin": Offer(CONTENT),
    }
    server.offers["/set.bin"] = Offer(CONTENT)
    unknown = source_of(CONTENT, f"{secure.address}/a", sha256="", bytes=0, is_exact=False)
    with pytest.raises(InputError, match="http:// is only used where a checksum is known"):
        obtain(unknown, tmp_path, unverified=True)
    assert server.asked == []
    obtain(replace(unknown, addresses=(f"{secure.address}/b",)), tmp_path, unverified=True)
    obtain(source_of(CONTENT, f"{secure.address}/a"), tmp_path / "verified")
    assert len(server.asked) == 1


def test_a_broken_transfer_without_a_checksum_is_not_kept(secure: Server, tmp_path: Path) -> None:
    secure.offers["/set.bin"] = Offer(CONTENT, breaks=[1000, 0])
    with pytest.raises(InputError, match="the transfer ended after 1,000"):
        obtain(source_of(CONTENT, f"{secure.address}/set.bin", sha256=""), tmp_path, unverified=True)
    assert left(tmp_path) == []


def test_the_first_digits_of_a_checksum_are_checked(server: Server, tmp_path: Path) -> None:
    server.offers["/set.bin"] = Offer(CONTENT)
    whole = hashlib.sha256(CONTENT).hexdigest()
    assert whole in obtain(source_of(CONTENT, f"{server.address}/set.bin", sha256=whole[:8]), tmp_path)
    with pytest.raises(InputError, match="that of the published file 00000000"):
        obtain(source_of(CONTENT, f"{server.address}/set.bin", sha256="00000000"), tmp_path / "other")


@pytest.mark.parametrize("size", [10_000, 1_100_000])
def test_a_full_disk_is_one_line_and_leaves_nothing(server: Server, tmp_path: Path, size: int) -> None:
    """A limit on the size of files stands for it: too small for the archive, or only for what is in it."""
    packed = archive({"set/a.bin": bytes(1_500_000)}, "w:gz") if size > 1_000_000 else archive({"set/a.bin": CONTENT})
    server.offers["/set.tar"] = Offer(packed)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        with pytest.raises(InputError, match="cannot write .*: File too large; check the space"):
            obtain(source_of(packed, f"{server.address}/set.tar", file="set.tar", to="set"), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [file for file in left(tmp_path) if file != "downloads/set.tar"] == []
    assert not (tmp_path / "set").exists()


def test_a_killed_run_leaves_nothing_that_looks_complete(server: Server, tmp_path: Path) -> None:
    content, sent = CONTENT * 8, threading.Event()
    server.offers["/set.bin"] = Offer(content, stalls=sent)
    source = source_of(content, f"{server.address}/set.bin")
    code = f"from oodshape.images.datasets.download import Download, Path, obtain; obtain({source!r}, Path('.'))"
    process = subprocess.Popen([sys.executable, "-c", code], cwd=tmp_path)
    part = tmp_path / "sets" / "set.bin.part"
    while not part.exists() or part.stat().st_size < 1 << 20:
        assert process.poll() is None
        time.sleep(0.02)
    process.kill()
    process.wait()
    sent.set()
    assert not (tmp_path / "sets" / "set.bin").exists()
    size = part.stat().st_size
    obtain(source, tmp_path)
    assert server.asked[-1][1] == f"bytes={size}-"
    assert left(tmp_path) == ["sets/set.bin"]


def test_offline_nothing_is_asked(server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OODSHAPE_OFFLINE", "1")
    server.offers["/set.bin"] = Offer(CONTENT)
    with pytest.raises(InputError, match="--offline or OODSHAPE_OFFLINE forbids downloads"):
        obtain(source_of(CONTENT, f"{server.address}/set.bin"), tmp_path)
    assert server.asked == []


@pytest.mark.parametrize("mode", ["w", "w:gz", "zip"])
@pytest.mark.parametrize("top", ["", "set/"])
def test_an_archive_becomes_the_folder_with_or_without_its_own(
    server: Server, tmp_path: Path, mode: str, top: str
) -> None:
    links = {} if mode == "zip" else {f"{top}link": "/etc"}
    packed = archive({f"{top}a/1.png": b"1", f"{top}b/2.png": b"2", f"{top}a/.DS_Store": b"x"}, mode, links)
    server.offers["/set.zip"] = Offer(packed)
    (tmp_path / "downloads" / "set.zip.unpacking" / "junk").mkdir(parents=True)  # of a run that was killed
    source = source_of(packed, f"{server.address}/set.zip", file="set.zip", to="set")
    obtain(source, tmp_path)
    assert left(tmp_path) == ["set/a/1.png", "set/b/2.png"]
    assert list((tmp_path / "downloads").iterdir()) == []
    obtain(source, tmp_path)
    assert len(server.asked) == 1


def test_only_a_part_of_an_archive_is_unpacked(server: Server, tmp_path: Path) -> None:
    names = [f"tiny/val/images/{n}.png" for n in range(50)]
    packed = archive(dict.fromkeys(["tiny/train/0.png", "tiny/words.txt", *names], b"x"))
    server.offers["/set.tar"] = Offer(packed)
    source = source_of(packed, f"{server.address}/set.tar", file="set.tar", to="tiny/val", inside="tiny/val/images")
    obtain(source, tmp_path)
    assert len(left(tmp_path)) == 50
    obtain(replace(source, to="sample", pick=7), tmp_path)
    sample = sorted(path.name for path in (tmp_path / "sample").iterdir())
    assert len(sample) == 7
    obtain(replace(source, to="again", pick=7), tmp_path)
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == sample
    with pytest.raises(InputError, match="it holds no file below 'other'"):
        obtain(replace(source, to="other", inside="other"), tmp_path)


@pytest.mark.parametrize("name", ["../outside.png", "/outside.png", "set/../../outside.png"])
@pytest.mark.parametrize("mode", ["w", "zip"])
def test_nothing_is_written_outside(server: Server, tmp_path: Path, name: str, mode: str) -> None:
    packed = archive({"set/a.png": b"1", name: b"2"}, mode)
    server.offers["/set.tar"] = Offer(packed)
    with pytest.raises(InputError, match="which is not inside a folder"):
        obtain(source_of(packed, f"{server.address}/set.tar", file="set.tar", to="set"), tmp_path / "data")
    assert [file for file in left(tmp_path) if not file.endswith("downloads/set.tar")] == []


@pytest.mark.parametrize(
    ("packed", "error"),
    [
        (archive({"set/zeros.png": bytes(300_000_000)}, "w:gz"), "inflates to .* over the limit"),
        (archive({"set/a.png": bytes(100_000)})[:50_000], "is damaged|unexpected end"),
        (b"no archive at all", "is damaged"),
    ],
)
def test_a_bomb_and_a_damaged_archive_are_one_line(server: Server, tmp_path: Path, packed: bytes, error: str) -> None:
    server.offers["/set.tar"] = Offer(packed)
    with pytest.raises(InputError, match=error):
        obtain(source_of(packed, f"{server.address}/set.tar", file="set.tar", to="set"), tmp_path)
    assert not (tmp_path / "set").exists()


def test_an_archive_that_a_user_got_is_unpacked_and_kept(tmp_path: Path) -> None:
    packed = archive({"a.png": b"1"}, "zip")
    source = source_of(packed, "https://drive.google.com/file/d/1", file="set.zip", to="set", sha256="", is_exact=False)
    (tmp_path / "downloads").mkdir()
    (tmp_path / "downloads" / "set.zip").write_bytes(PAGE)
    with pytest.raises(InputError, match=r"set\.zip is a web page, .* delete .* and get it again"):
        obtain(source, tmp_path)
    (tmp_path / "downloads" / "set.zip").write_bytes(packed)
    assert hashlib.sha256(packed).hexdigest() in obtain(source, tmp_path)
    assert left(tmp_path) == ["downloads/set.zip", "set/a.png"]
