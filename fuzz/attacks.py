"""Attacks on `oodshape serve` with an honest client next to them: what the client, /health and the memory see.

    python fuzz/attacks.py GUARDED.ONNX IMAGE [--attack NAME] [--seconds 8] [--workers 2]

Each attack runs in its own process against a service on the loopback interface, for a limited time and with limited
connections. Meanwhile one client sends IMAGE again and again, and another one asks /health. The limits: /health within
200 ms, the client's p99 within 2 s, memory (PSS of all processes) below 600 MB, SIGTERM within MAX_SECONDS + 5 s. The
first line, without an attack, shows what the machine itself takes.
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import multiprocessing
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

HEALTH, P99, MEMORY, STOP = 0.2, 2.0, 600.0, 5.0
SIZE, MAX_SECONDS = 32 << 20, 30
FORM = "multipart/form-data; boundary=b"
JSON = "application/json"
PART = b'--b\r\nContent-Disposition: form-data; name="images"\r\n\r\n'


def connect(port: int) -> socket.socket:
    """A connection to the service."""
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def post(port: int, kind: str, body: bytes, *, wait: bool = True) -> bytes:
    """The first bytes of the answer; empty where nobody waits for it, or the service hangs up."""
    head = f"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    with suppress(OSError), closing(connect(port)) as line:
        line.sendall(head.encode() + body)
        line.settimeout(60)
        return line.recv(200) if wait else b""
    return b""


def images(data: bytes, count: int) -> bytes:
    """A JSON body with the same image many times."""
    return json.dumps({"images": [base64.b64encode(data).decode()] * count}).encode()


def png(side: int, extra: bytes = b"") -> bytes:
    """A black image, which may be large in few bytes, with more blocks after its header."""
    packer = zlib.compressobj(9)
    rows = b"".join(packer.compress(bytes(1 + 3 * side)) for _ in range(side)) + packer.flush()
    header = png_block(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + extra + png_block(b"IDAT", rows) + png_block(b"IEND", b"")


def png_block(kind: bytes, data: bytes) -> bytes:
    """A block of a PNG file."""
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def wide_tiles(width: int, height: int) -> bytes:
    """A small TIFF whose tiles are all the same bytes, and hundreds of times as wide as the image."""
    side, tile = 16, zlib.compress(bytes(32768 * 16 * 3), 9)
    count = -(-height // side)
    tags = ((256, width), (257, height), (258, 8), (259, 8), (262, 2), (277, 3), (322, 32768), (323, side))
    entries = [struct.pack("<HHII", tag, 4, 1, value) for tag, value in tags]
    start = 8 + 2 + 12 * (len(tags) + 2) + 4
    entries += [struct.pack("<HHII", tag, 4, count, at) for tag, at in ((324, start), (325, start + 4 * count))]
    head = b"II*\0" + struct.pack("<IH", 8, len(entries)) + b"".join(entries) + bytes(4)
    return head + struct.pack("<I", start + 8 * count) * count + struct.pack("<I", len(tile)) * count + tile


def jpeg_of_scans(side: int, scans: int) -> bytes:
    """A progressive JPEG with many empty scans: 44 bytes each, and each a pass over the whole image."""
    blocks = (-(-side // 8)) ** 2

    def scan(first: int, last: int, bits: str) -> bytes:
        bits += "1" * (-len(bits) % 8)
        data = int(bits, 2).to_bytes(len(bits) // 8, "big").replace(b"\xff", b"\xff\0")
        return b"\xff\xda" + struct.pack(">HB", 8, 1) + bytes([1, 0, first, last, 0]) + data

    head = b"\xff\xd8\xff\xdb" + struct.pack(">H", 67) + b"\0" + bytes([1] * 64)
    head += b"\xff\xc2" + struct.pack(">HBHHB", 11, 8, side, side, 1) + bytes([1, 0x11, 0])
    for table, symbol in ((b"\0", b"\0"), (b"\x10", b"\xe0")):
        head += b"\xff\xc4" + struct.pack(">H", 20) + table + bytes([1] + [0] * 15) + symbol
    return head + scan(0, 0, "0" * blocks) + scan(1, 63, ("0" + "1" * 14) * -(-blocks // 32767)) * scans + b"\xff\xd9"


def hold(port: int, count: int, sent: bytes, seconds: float) -> None:
    """Open connections that send this and then wait."""
    lines = []
    for _ in range(count):
        with suppress(OSError):
            lines.append(connect(port))
            lines[-1].sendall(sent)
    time.sleep(seconds)


def endless_headers(port: int, seconds: float) -> None:
    """Headers that never end, on new connections where the service hangs up; at most 100 MB."""
    end = time.monotonic() + seconds
    for _ in range(1000):
        with suppress(OSError), closing(connect(port)) as line:
            line.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n")
            while time.monotonic() < end:
                line.sendall(b"X-A: " + b"a" * 100_000 + b"\r\n")


def at_once(port: int, count: int, kind: str, body: bytes, *, wait: bool = True) -> None:
    """The same request from several clients."""
    clients = [threading.Thread(target=post, args=(port, kind, body), kwargs={"wait": wait}) for _ in range(count)]
    for client in clients:
        client.start()
    for client in clients:
        client.join()


def again(attack: Callable[[], object], seconds: float) -> None:
    """Repeat an attack until the time is over."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        attack()


def attack(name: str, port: int, seconds: float) -> None:
    """Run one attack for about so many seconds."""
    half = b"POST /predict HTTP/1.1\r\nHost: x\r\n"
    bodies: dict[str, tuple[str, Callable[[], bytes]]] = {
        "empty-images": (JSON, lambda: b'{"images":[' + b'"",' * ((SIZE - 20) // 3) + b'""]}'),
        "nested-lists": (JSON, lambda: b'{"images":[' + b"[]," * ((SIZE - 20) // 3) + b"[]]}"),
        "escapes": (JSON, lambda: b'{"images":["' + b"\\u0041" * ((SIZE - 20) // 6) + b'"]}'),
        "many-parts": (FORM, lambda: (PART + b"\r\n") * (SIZE // (len(PART) + 2) - 1) + b"--b--\r\n"),
        "part-headers": (FORM, lambda: b"--b\r\n" + b"A: b\r\n" * (SIZE // 6 - 20) + b"\r\n\r\nx\r\n--b--\r\n"),
        "parameters": (
            FORM,
            lambda: b"--b\r\nContent-Disposition: form-data" + b";a" * 200_000 + b"\r\n\r\nx\r\n--b--\r\n",
        ),
        "empty-lines": (FORM, lambda: b"\r\n" * (SIZE // 2 - 100) + PART + b"x\r\n--b--\r\n"),
        "near-boundaries": (FORM, lambda: PART + b"\r\n--" * (SIZE // 4 - 100) + b"\r\n--b--\r\n"),
    }
    if name in bodies:
        kind, make = bodies[name]
        body = make()
        again(lambda: at_once(port, 2, kind, body), seconds)
    elif name == "jpeg-scans":
        body = images(jpeg_of_scans(4900, 30_000), 1)
        again(lambda: at_once(port, 2, JSON, body), seconds)
    elif name in ("wide-tiles", "png-blocks"):
        body = images(
            wide_tiles(100, 10_000) if name == "wide-tiles" else png(8, png_block(b"prIv", b"") * 2_000_000), 1
        )
        again(lambda: at_once(port, 4, JSON, body), seconds)
    elif name == "hang-ups":
        body = images(png(7000), 32)
        at_once(port, 20, JSON, body, wait=False)
        time.sleep(seconds)
    elif name == "large-images":
        body = images(png(7000), 8)
        again(lambda: at_once(port, 2, JSON, body), seconds)
    elif name == "slow-bodies":
        hold(port, 64, half + b"Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{", seconds)
    elif name == "large-slow-bodies":
        length = b"Content-Length: 33000000\r\n\r\n"
        hold(port, 16, half + b"Content-Type: application/json\r\n" + length + b" " * 32_000_000, seconds)
    elif name == "half-headers":
        hold(port, 900, half, seconds)
    elif name == "endless-headers":
        endless_headers(port, seconds)
    else:
        time.sleep(seconds)


ATTACKS = (
    *("none", "empty-images", "nested-lists", "escapes", "many-parts", "part-headers", "parameters", "empty-lines"),
    *("near-boundaries", "jpeg-scans", "wide-tiles", "png-blocks", "hang-ups", "large-images", "slow-bodies"),
    *("large-slow-bodies", "half-headers", "endless-headers"),
)


def tree(root: int) -> list[int]:
    """A process and all below it."""
    found, todo = [], [root]
    while todo:
        with suppress(OSError):
            for task in Path(f"/proc/{todo[-1]}/task").iterdir():
                todo[:0] = map(int, (task / "children").read_text().split())
        found.append(todo.pop())
    return found


def memory(root: int) -> float:
    """Megabytes of a process and all below it; pages that they share count once."""
    kilobytes = 0
    for pid in tree(root):
        with suppress(OSError):
            lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
            kilobytes += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return kilobytes / 1000


class Observer:
    """The honest clients, and what they see."""

    def __init__(self, port: int, pid: int, image: bytes) -> None:
        self.port, self.pid, self.body, self.stop = port, pid, images(image, 1), threading.Event()
        self.health: list[float] = []
        self.answers: list[float] = []
        self.statuses: Counter[str] = Counter()
        self.peak = 0.0
        self.threads = [threading.Thread(target=each) for each in (self.ask_health, self.ask, self.weigh)]
        for thread in self.threads:
            thread.start()

    def request(self, method: str, path: str, body: bytes | None) -> float:
        """The seconds that a request takes."""
        start = time.monotonic()
        try:
            with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as line:
                line.request(method, path, body, {"Content-Type": JSON} if body else {})
                status = str(line.getresponse().status)
        except (OSError, http.client.HTTPException) as error:
            status = type(error).__name__
        self.statuses[f"{path} {status}"] += 1
        return time.monotonic() - start

    def ask_health(self) -> None:
        while not self.stop.wait(0.05):
            self.health.append(self.request("GET", "/health", None))

    def ask(self) -> None:
        while not self.stop.wait(0.05):
            self.answers.append(self.request("POST", "/predict", self.body))

    def weigh(self) -> None:
        while not self.stop.wait(0.2):
            self.peak = max(self.peak, memory(self.pid))

    def end(self) -> None:
        self.stop.set()
        for thread in self.threads:
            thread.join()


def observe(name: str, port: int, pid: int, image: bytes, seconds: float) -> bool:
    """Print what the clients see during an attack; whether all limits hold."""
    attacker = multiprocessing.Process(target=attack, args=(name, port, seconds))
    attacker.start()
    observer = Observer(port, pid, image)
    attacker.join(seconds + 60)
    if attacker.is_alive():
        attacker.kill()
    observer.end()
    answers, health = sorted(observer.answers), max(observer.health)
    p99 = answers[int(0.99 * (len(answers) - 1))]
    errors = {status: count for status, count in observer.statuses.items() if not status.endswith(" 200")}
    kept = health <= HEALTH and p99 <= P99 and observer.peak <= MEMORY and not errors
    print(
        f"{name:18} /health at most {1000 * health:5.0f} ms; client p50 {1000 * answers[len(answers) // 2]:5.0f}, "
        f"p99 {1000 * p99:5.0f} ms of {len(answers):4}; {observer.peak:4.0f} MB; "
        f"{'ok' if kept else 'MISSED'} {errors or ''}",
        flush=True,
    )
    return kept


def main() -> None:
    """Start the service, attack it, stop it under an attack."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("guarded")
    parser.add_argument("image", type=Path)
    parser.add_argument("--attack", choices=ATTACKS, action="append")
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--workers", default="2")
    words = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
    with closing(socket.socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    code = "from oodshape.cli import main; main()"
    told = ["serve", words.guarded, "--port", str(port), "--workers", words.workers, "--max", f"seconds={MAX_SECONDS}"]
    kept = True
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with subprocess.Popen([sys.executable, "-c", code, *told, "--watch"], stdout=subprocess.DEVNULL) as server:
        try:
            while not post(port, JSON, b"{}"):
                assert server.poll() is None, "the service ended"
                time.sleep(0.2)
            for name in words.attack or ATTACKS:
                kept &= observe(name, port, server.pid, words.image.read_bytes(), words.seconds)
            attacker = multiprocessing.Process(target=attack, args=("large-images", port, words.seconds))
            attacker.start()
            time.sleep(3)
            start = time.monotonic()
            server.send_signal(signal.SIGTERM)
            status = server.wait(2 * MAX_SECONDS)
            took = time.monotonic() - start
            attacker.kill()
        finally:
            server.kill()
    kept &= status == 0 and took <= MAX_SECONDS + STOP
    print(f"stopped {took:.1f} s after SIGTERM with status {status}; {'all limits hold' if kept else 'MISSED'}")
    sys.exit(not kept)


if __name__ == "__main__":
    main()
