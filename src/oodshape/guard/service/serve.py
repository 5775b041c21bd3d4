"""Start the service and stop it: what can be wrong is reported before the first request."""

from __future__ import annotations

import asyncio
import signal
import socket
from typing import Any, ClassVar

from oodshape.core.errors import InputError, import_optional
from oodshape.guard.service.settings import Settings

LIBRARIES = ("fastapi", "uvicorn", "onnxruntime", "prometheus_client")
MAX_HEADER = 1 << 14  # bytes
HEADER_SECONDS = 10.0  # for the headers of a request, and between two requests of a connection; never over max_seconds
GRACE_SECONDS = 5.0  # for the rest of a connection, after all other limits of a request
MAX_CONNECTIONS = 512
# Parsing costs time for each chunk, however small: so many may be small, then their mean size must be large enough
FREE_CHUNKS, MEAN_CHUNK = 256, 512  # bytes


def serve(settings: Settings) -> None:
    """Serve until a signal arrives, then finish the open requests."""
    for name in LIBRARIES:
        import_optional(name, "serve", "serving")
    import uvicorn

    from oodshape.guard.service.app import create_app
    from oodshape.guard.service.logs import configure_logs
    from oodshape.guard.service.pool import WorkerPool
    from oodshape.guard.watch.watch import lock_state

    _check_free(settings)
    with lock_state(settings.state):
        pool = WorkerPool(settings)
        try:
            app = create_app(settings, pool)
            configure_logs()
            # uvicorn raises the signal again after it has stopped; a stop that was asked for is not a failure
            for each in (signal.SIGTERM, signal.SIGINT):
                signal.signal(each, lambda *_: None)
            uvicorn.run(
                app,
                host=settings.host,
                port=settings.port,
                http=_bounded_protocol(settings.max_seconds),
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_graceful_shutdown=max(1, int(settings.max_seconds)),
            )
        finally:
            pool.close()


def _bounded_protocol(max_seconds: float) -> Any:
    """Uvicorn's HTTP protocol with limits for headers, chunks, the time of a request, and open connections."""
    import h11
    from uvicorn.protocols.http.h11_impl import H11Protocol

    header_seconds = min(HEADER_SECONDS, max_seconds)

    class BoundedConnection(h11.Connection):
        chunks = received = 0  # of the current body

        def next_event(self) -> Any:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self.chunks = self.received = 0
                # h11 itself only limits headers whose end has not arrived yet
                if len(event.target) + sum(len(name) + len(value) for name, value in event.headers) > MAX_HEADER:
                    raise h11.RemoteProtocolError("the headers are too large")
            elif isinstance(event, h11.Data):
                self.chunks += event.chunk_start
                self.received += len(event.data)
                if self.chunks > FREE_CHUNKS and self.received < MEAN_CHUNK * self.chunks:
                    raise h11.RemoteProtocolError("the chunks are too small")
            return event

    class BoundedProtocol(H11Protocol):
        idle: ClassVar[dict[Any, None]] = {}  # connections without a request, the oldest first
        current: Any = None
        timer: asyncio.TimerHandle | None = None

        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self.conn = BoundedConnection(h11.SERVER, MAX_HEADER)
            self._limit(header_seconds)
            self.idle[self] = None
            if len(self.connections) > MAX_CONNECTIONS:
                next(iter(self.idle)).transport.abort()

        def data_received(self, data: bytes) -> None:
            for start in range(0, len(data), MAX_HEADER):  # h11 checks its limit after each part
                if not self.transport.is_closing():
                    super().data_received(data[start : start + MAX_HEADER])
            self._check_state()

        def handle_events(self) -> None:
            super().handle_events()
            if self.conn.their_state is h11.DONE and self.conn.trailing_data[0]:
                self.cycle.keep_alive = False  # requests sent ahead are not limited, so they are not answered

        def send_400_response(self, message: str) -> None:
            if self.cycle is not None:
                self.cycle.disconnected = True  # it must not answer a second time
            if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
                super().send_400_response(message)
            else:
                self.transport.abort()

        def on_response_complete(self) -> None:
            super().on_response_complete()
            self._check_state()

        def connection_lost(self, error: Exception | None) -> None:
            super().connection_lost(error)
            self.idle.pop(self, None)
            if self.timer is not None:
                self.timer.cancel()

        def _check_state(self) -> None:
            current = None if self.cycle is None or self.cycle.response_complete else self.cycle
            if current is self.current:
                return
            self.current = current
            self.idle.pop(self, None)
            if current is None:
                self.idle[self] = None
            self._limit(header_seconds if current is None else 2 * max_seconds + GRACE_SECONDS)

        def _limit(self, seconds: float) -> None:
            if self.timer is not None:
                self.timer.cancel()
            self.timer = self.loop.call_later(seconds, self.transport.abort)

    return BoundedProtocol


def _check_free(settings: Settings) -> None:
    """Refuse an address that is not available."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((settings.host, settings.port))
        except OSError as error:
            raise InputError(
                f"cannot serve at {settings.host} port {settings.port}: {error.strerror}; give another --host or --port"
            ) from None
