"""The web application: it receives requests within limits, hands them to the pool, counts and answers."""

from __future__ import annotations

import asyncio
import hmac
import json
import logging
import time
from base64 import b64encode
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from importlib.resources import files

import anyio
from fastapi import Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, Response
from starlette.requests import ClientDisconnect

import oodshape
from oodshape.core.files import one_line
from oodshape.guard.service.body import Refused
from oodshape.guard.service.logs import log_event
from oodshape.guard.service.metrics import Metrics
from oodshape.guard.service.pool import WorkerPool
from oodshape.guard.service.response_models import BODY, REFUSALS, Answer, Served, Status
from oodshape.guard.service.settings import Settings
from oodshape.guard.service.watching import Watching
from oodshape.guard.service.worker import Json

ABOUT = "The class that a network predicts for an image, and whether the image is in-distribution."
MEDIA = ("multipart/form-data", "application/json")
FREE = 1 << 20  # bytes of a request that always have room; only what is above counts for the limit of all requests
PAUSE = 0.1  # seconds until a large image asks for its turn again
OVERLOAD_SECONDS = 2.0  # that a new request waits for its first slice when the service says that it is not ready


class _Reception:
    """A body that arrives."""

    def __init__(self, scope: anyio.CancelScope) -> None:
        self.scope, self.body, self.dropped = scope, bytearray(), False

    def drop(self) -> None:
        self.dropped = True
        self.scope.cancel()


class Service:
    """The state of the service: scoring pool, metrics and watch."""

    def __init__(self, settings: Settings, pool: WorkerPool) -> None:
        self.settings, self.pool = settings, pool
        self.metrics = Metrics(watch=settings.watch)
        self.watching = Watching(pool.about, settings, self.metrics) if settings.watch else None
        self.running = False
        self._receptions: dict[int, _Reception] = {}
        self._in_hand: dict[int, int] = {}  # bytes of each request that waits or is scored
        self._addresses: Counter[str] = Counter()

    @property
    def status(self) -> str:
        """`ready` if a request that comes now is answered soon."""
        if not self.running:
            return "stopping"
        full = len(self._in_hand) >= self.settings.max_requests
        return "overloaded" if full or self.pool.longest_wait > OVERLOAD_SECONDS else "ready"

    def authorize(self, request: Request) -> None:
        """Refuse a request without the token."""
        given = request.headers.get("authorization", "")
        if self.settings.token and not hmac.compare_digest(given.encode(), f"Bearer {self.settings.token}".encode()):
            raise Refused(401, "send the header Authorization: Bearer TOKEN with the token of this service")

    async def predict(self, request: Request) -> Response:
        """The answer to a request for predictions, which is counted and logged."""
        start, status, rows = time.perf_counter(), 500, list[Json]()
        address = request.client.host if request.client else ""
        self._addresses[address] += 1
        try:
            self.authorize(request)
            if self._addresses[address] > (self.settings.max_per_address or self._addresses[address]):
                raise Refused(429, f"more than {self.settings.max_per_address} requests at the same time; try again")
            body = await self._receive(request)
            rows = await self._score(request, body)
            self._count(rows)
            status = 200 if any("score" in row for row in rows) else 400
            detail = {} if status == 200 else {"detail": f"no image can be read; {rows[0]['name']} {rows[0]['error']}"}
            return Response(json.dumps(detail | {"images": rows}), status, media_type="application/json")
        except Refused as refused:
            status = refused.status
            return _refuse(refused)
        except ClientDisconnect:
            status = 499
            return Response(status_code=status)
        except asyncio.CancelledError:
            status = 503  # the service stops
            raise
        finally:
            self._addresses -= Counter([address])
            seconds = time.perf_counter() - start
            self.metrics.requests.labels(status).inc()
            self.metrics.seconds.observe(seconds)
            log_event(
                "predict",
                status=status,
                images=len(rows),
                rejected=sum(row["accepted"] is False for row in rows),
                unreadable=sum(row["accepted"] is None for row in rows),
                seconds=round(seconds, 4),
            )

    async def _receive(self, request: Request) -> bytearray:
        """The body, within the limits of size and time."""
        settings = self.settings
        medium = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if medium not in MEDIA:
            raise Refused(415, f"send {' or '.join(MEDIA)}, not {one_line(medium, 60) or 'nothing'}")
        too_large = Refused(413, f"the request is larger than {settings.max_bytes:,} bytes")
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:20]) > settings.max_bytes:
            raise too_large
        with anyio.move_on_after(settings.max_seconds) as scope:
            own = self._receptions[id(request)] = _Reception(scope)
            try:
                async for part in request.stream():
                    own.body += part
                    if len(own.body) > settings.max_bytes:
                        raise too_large
                    self._make_room()
            finally:
                del self._receptions[id(request)]
        if own.dropped:
            raise Refused(503, "other requests need the room of this one; try again")
        if scope.cancelled_caught:
            raise Refused(408, f"the request did not arrive within {settings.max_seconds:g} seconds")
        return own.body

    def _make_room(self) -> None:
        """Drop the oldest arriving body if there are too many, the largest if they are too large together."""
        arriving = [each for each in self._receptions.values() if not each.dropped]
        if len(arriving) > self.settings.max_requests:
            arriving.pop(0).drop()
        sizes = [*self._in_hand.values(), *(len(each.body) for each in arriving)]
        if sum(max(size - FREE, 0) for size in sizes) > 2 * self.settings.max_bytes:
            max(arriving, key=lambda each: len(each.body)).drop()

    async def _score(self, request: Request, body: bytearray) -> list[Json]:
        """A row for each image; the work ends if the client hangs up or the time is over."""
        if len(self._in_hand) >= self.settings.max_requests:
            raise Refused(503, f"{self.settings.max_requests} requests are in hand; try again")
        rows, refusal, gone = list[Json](), Json(), False

        async def stop_at_disconnect(scope: anyio.CancelScope) -> None:
            nonlocal gone
            while (await request.receive())["type"] != "http.disconnect":
                pass
            gone = True
            scope.cancel()

        self._in_hand[id(request)] = len(body)
        try:
            with anyio.move_on_after(self.settings.max_seconds) as time_limit:
                async with anyio.create_task_group() as group:
                    group.start_soon(stop_at_disconnect, group.cancel_scope)
                    slices, slow, content_type = 0, False, request.headers["content-type"]
                    while not refusal:
                        answer = await self.pool.ask(slices, content_type, body, len(rows), slow=slow)
                        slices, slow = slices + 1, slow or "slow" in answer
                        rows += answer.get("rows", [])
                        if "status" in answer:
                            refusal = answer
                        elif len(rows) == answer["images"]:
                            break
                        elif not answer["rows"]:  # another process decodes a large or slow image
                            await anyio.sleep(PAUSE)
                    group.cancel_scope.cancel()
        finally:
            del self._in_hand[id(request)]
        if gone:
            raise ClientDisconnect
        if time_limit.cancelled_caught:
            raise Refused(503, f"no answer within {self.settings.max_seconds:g} seconds; try again")
        if refusal:
            raise Refused(refusal["status"], refusal["detail"])
        return rows

    def _count(self, rows: list[Json]) -> None:
        for row in rows:
            if "error" in row:
                self.metrics.unreadable.inc()
                continue
            self.metrics.images.inc()
            if not row["accepted"]:
                self.metrics.rejected.labels(row["class"]).inc()
        if self.watching is not None:
            self.watching.add(rows)

    def read_metrics(self) -> bytes:
        """The metrics of this moment."""
        self.metrics.in_hand.set(len(self._in_hand))
        self.metrics.restarts.set(self.pool.restarts)
        if self.watching is not None:
            self.watching.look()
        return self.metrics.text()


def _refuse(refused: Refused) -> Response:
    """The answer to a refused request. Its body may not have been read, so the connection cannot be used again."""
    headers = {"connection": "close"}
    headers |= {"retry-after": "1"} if refused.status in (429, 503) else {}
    headers |= {"www-authenticate": "Bearer"} if refused.status == 401 else {}
    return JSONResponse({"detail": refused.detail}, refused.status, headers)


def _read_page() -> tuple[str, str]:
    """Return the page for browsers, and the policy under which it runs its own script and asks this service alone."""
    page = (files(__package__) / "page.html").read_text(encoding="utf-8")
    digests = {}
    for tag in ("script", "style"):
        inside = page.partition(f"<{tag}>")[2].partition(f"</{tag}>")[0]
        digests[tag] = b64encode(sha256(inside.encode()).digest()).decode()
    rules = ["default-src 'none'", "connect-src 'self'", "img-src blob:", "base-uri 'none'", "form-action 'none'"]
    rules += ["frame-ancestors 'none'", *(f"{tag}-src 'sha256-{digest}'" for tag, digest in digests.items())]
    return page, "; ".join(rules)


def create_app(settings: Settings, pool: WorkerPool) -> FastAPI:
    """The application around a pool that has started; it closes the pool."""
    service = Service(settings, pool)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        timer = None if service.watching is None else asyncio.create_task(service.watching.run())
        service.running = True
        log_event("started", file=settings.file, method=pool.about["method"])
        yield
        service.running = False
        pool.close()
        if timer is not None and service.watching is not None:
            timer.cancel()
            service.watching.look()
            service.watching.save()
        log_event("stopped")

    app = FastAPI(
        title="oodshape",
        version=oodshape.__version__,
        description=ABOUT,
        lifespan=lifespan,
        redoc_url=None,
        docs_url=None,
        redirect_slashes=False,  # a redirect would go where the Host header says
    )

    @app.post("/predict", response_model=Answer, responses=REFUSALS, openapi_extra=BODY)
    async def predict(request: Request) -> Response:
        """Predicted class, score, p-value and decision for one or many images."""
        return await service.predict(request)

    @app.get("/health")
    async def health() -> Status:
        """Whether the process lives."""
        return Status(status="alive")

    @app.get(
        "/ready", response_model=Status, responses={503: {"model": Status, "description": "Overloaded or stopping."}}
    )
    async def ready() -> Response:
        """Whether a request that comes now is answered soon."""
        return JSONResponse({"status": service.status}, 200 if service.status == "ready" else 503)

    token = [Depends(service.authorize)]

    @app.get("/metrics", response_class=Response, dependencies=token, responses={401: REFUSALS[401]})
    async def metrics() -> Response:
        """Counts and the evidence of the watch, for Prometheus."""
        return Response(service.read_metrics(), media_type="text/plain; version=0.0.4; charset=utf-8")

    page, policy = _read_page()

    @app.get("/", response_model=Served, responses={401: REFUSALS[401]})
    async def about(request: Request) -> Response:
        """What is served; for a browser, a page to try it, which holds nothing that a token protects."""
        if "text/html" in request.headers.get("accept", ""):
            return HTMLResponse(page, headers={"content-security-policy": policy, "x-content-type-options": "nosniff"})
        service.authorize(request)
        return Response(Served(oodshape=oodshape.__version__, **pool.about).model_dump_json(), media_type=MEDIA[1])

    @app.exception_handler(Refused)
    async def refused(request: Request, error: Refused) -> Response:
        return _refuse(error)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        log_event("failed", level=logging.ERROR, path=request.url.path, error=repr(error))
        return _refuse(Refused(500, "the service failed; its log says why"))

    return app
