"""A web server on this machine that offers files, and fails in the ways that servers of data sets do."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@dataclass
class Offer:
    """What an address answers with."""

    content: bytes = b""
    kind: str = "application/octet-stream"
    status: int = 200
    to: str = ""  # a redirect
    breaks: list[int] = field(default_factory=list)  # bytes after which the first transfers break
    stalls: threading.Event | None = None  # wait for it before the second half
    ranges: bool = True


@dataclass
class Server:
    """The server's address, what it offers by path, and what it was asked for: (path, range)."""

    address: str
    offers: dict[str, Offer] = field(default_factory=dict)
    asked: list[tuple[str, str]] = field(default_factory=list)


@contextmanager
def serving(certificate: Path | None = None) -> Iterator[Server]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            server.asked.append((self.path, self.headers.get("Range", "")))
            offer = server.offers.get(self.path.partition("?")[0], Offer(b"gone", status=404))
            first = int(self.headers["Range"][6:-1]) if offer.ranges and "Range" in self.headers else 0
            content = offer.content[first:]
            self.send_response(302 if offer.to else 416 if first and not content else 206 if first else offer.status)
            self.send_header("Content-Type", offer.kind)
            self.send_header("Content-Length", str(len(content)))
            if first:
                self.send_header("Content-Range", f"bytes {first}-{len(offer.content) - 1}/{len(offer.content)}")
            if offer.to:
                self.send_header("Location", offer.to)
            self.end_headers()
            if offer.stalls is not None:
                self.wfile.write(content[: len(content) // 2])
                self.wfile.flush()
                offer.stalls.wait(60)
                content = content[len(content) // 2 :]
            self.wfile.write(content[: offer.breaks.pop(0) if offer.breaks else None])

        def log_message(self, *_: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, *_: object) -> None:
            """A client that was killed is no news."""

    http = Quiet(("127.0.0.1", 0), Handler)
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        http.socket = context.wrap_socket(http.socket, server_side=True)
    server = Server(f"{'https' if certificate else 'http'}://localhost:{http.server_port}")
    thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        http.shutdown()
        http.server_close()
        thread.join()
