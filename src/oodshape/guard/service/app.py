"""The web application: what is asked where, and how it is answered."""

from __future__ import annotations

import asyncio
import json
import logging
import math
import os
import time
import warnings
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from tempfile import mkdtemp
from typing import Any

import numpy as np
import PIL.Image
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response

import oodshape
from oodshape.core.errors import InputError
from oodshape.guard.guarded_file import GuardedFile
from oodshape.guard.service.body import Refused, Upload, uploads
from oodshape.guard.service.counters import Counters
from oodshape.guard.service.logs import configure, say
from oodshape.guard.service.openapi import ABOUT, PREDICT, STATUS, TEXT
from oodshape.guard.service.settings import VARIABLE, Settings
from oodshape.guard.service.watching import Watching
from oodshape.guard.verdict import Verdict
from oodshape.images.decode import Unreadable
from oodshape.images.limits import Limits

Answers = list[Verdict | InputError]


class Service:
    """The file, the threads that judge images, and what is counted and watched."""

    def __init__(self, settings: Settings) -> None:
        """Load the file and try it once."""
        self.settings = settings
        Limits(settings.max_pixels, settings.max_aspect).use()
        warnings.filterwarnings("ignore", category=PIL.Image.DecompressionBombWarning)  # the limits speak
        self.guarded = GuardedFile(settings.file, threads=1)
        names: list[str | int] = [*(self.guarded.names or range(self.guarded.classes))]
        self.counters = Counters(settings.folder or mkdtemp(prefix="oodshape-"), names)
        self.watching = Watching(self.guarded, settings, self.counters) if settings.watch else None
        self.threads = ThreadPoolExecutor(settings.threads, "judge")
        self.in_hand, self.ready = 0, False

    def try_once(self) -> None:
        """An image without content: what cannot work fails now, and the first request is as quick as the others."""
        size = self.guarded.preprocessing.size or self.guarded.size or (64, 64)
        self.guarded.verdicts([np.zeros((*size, self.guarded.preprocessing.channels), np.uint8)])

    def judge(self, given: list[Upload]) -> Answers:
        """A verdict or an error for each image."""
        found: dict[int, Any] = {}
        for row, image in enumerate(given):
            try:
                found[row] = self.guarded.pixels(image.data)
            except Unreadable as error:
                found[row] = InputError(error.reason)
            except InputError as error:
                found[row] = error
        rows = [row for row in found if not isinstance(found[row], InputError)]
        if rows:
            found |= dict(zip(rows, self.guarded.verdicts([found[row] for row in rows]), strict=True))
        return [found[row] for row in range(len(given))]

    def count(self, answers: Answers) -> None:
        """Count and watch what was answered."""
        for each in answers:
            if isinstance(each, InputError):
                self.counters.add("unreadable")
                continue
            self.counters.add("images")
            if not each.accepted:
                self.counters.rejected(each.class_index)
        if self.watching is not None:
            self.watching.see(answers)

    async def predict(self, request: Request) -> Response:
        """The answer to a request for predictions."""
        start, status, given, answers = time.perf_counter(), 500, [], []
        self.in_hand += 1
        try:
            if self.in_hand > self.settings.max_requests:
                raise Refused(503, f"more than {self.settings.max_requests} requests are in hand; try again")
            headers = request.headers
            kind, length = headers.get("content-type", ""), headers.get("content-length", "")
            given = await uploads(kind, length, request.stream(), self.settings)
            loop = asyncio.get_running_loop()
            work = loop.run_in_executor(self.threads, self.judge, given)
            try:
                answers = await asyncio.wait_for(asyncio.shield(work), self.settings.max_seconds)
            except TimeoutError:
                raise Refused(503, f"no answer within {self.settings.max_seconds:g} seconds; try again") from None
            self.count(answers)
            rows = [_row(image, answer) for image, answer in zip(given, answers, strict=True)]
            status = 200 if any(isinstance(answer, Verdict) for answer in answers) else 400
            detail = {} if status == 200 else {"detail": f"no image can be read; {rows[0]['name']} {rows[0]['error']}"}
            return _answer(status, detail | {"images": rows})
        except Refused as refused:
            status = refused.status
            return _answer(status, {"detail": refused.detail}, closing=True)
        finally:
            self.in_hand -= 1
            seconds = time.perf_counter() - start
            self.counters.answered(status, seconds)
            verdicts = [each for each in answers if isinstance(each, Verdict)]
            say(
                "predict",
                status=status,
                images=len(given),
                rejected=sum(not each.accepted for each in verdicts),
                unreadable=len(answers) - len(verdicts),
                seconds=round(seconds, 4),
            )

    def close(self) -> None:
        """Finish what is in hand, and keep what was watched."""
        self.ready = False
        self.threads.shutdown(wait=True)
        if self.watching is not None:
            self.watching.save()


def _row(image: Upload, answer: Verdict | InputError) -> dict[str, Any]:
    if isinstance(answer, InputError):
        return {"name": image.name, "accepted": None, "error": str(answer)}
    label, place, score, p_value, accepted, threshold = answer
    return {
        "name": image.name,
        "class": label,
        "class_index": place,
        "score": score,
        "p_value": None if math.isnan(p_value) else p_value,
        "accepted": accepted,
        "threshold": None if math.isnan(threshold) else threshold,
    }


def _answer(status: int, said: dict[str, Any], *, closing: bool = False) -> Response:
    # a body that was not read to its end cannot be followed by another request
    headers = {"connection": "close"} if closing else {}
    headers |= {"retry-after": "1"} if status == 503 else {}
    return Response(json.dumps(said), status, headers, "application/json")


def create() -> FastAPI:
    """The application of a worker, with the settings that the command left in the environment."""
    return application(Settings.parse(os.environ[VARIABLE]))


def application(settings: Settings) -> FastAPI:
    """The application with these settings."""
    configure()
    service = Service(settings)

    @asynccontextmanager
    async def living(app: FastAPI) -> AsyncIterator[None]:
        service.try_once()
        service.ready = True
        say("started", file=str(service.guarded.path), method=service.guarded.method, worker=service.counters.slot)
        yield
        service.close()
        say("stopped", worker=service.counters.slot)

    app = FastAPI(
        title="oodshape",
        version=oodshape.__version__,
        description=ABOUT,
        lifespan=living,
        redoc_url=None,
        docs_url=None,
    )
    app.state.service = service

    async def predict(request: Request) -> Response:
        """Class, score, p-value and verdict of one or many images."""
        return await service.predict(request)

    async def health() -> dict[str, str]:
        """Whether the process lives."""
        return {"status": "alive"}

    async def ready() -> JSONResponse:
        """Whether requests are answered: not before the network has run once, and not while it stops."""
        return JSONResponse({"status": "ready" if service.ready else "stopping"}, 200 if service.ready else 503)

    async def metrics() -> Response:
        """Counts and the watch's evidence of all workers, as Prometheus reads them."""
        if service.watching is not None:
            service.watching.look()
        text = service.counters.text(watched=service.watching is not None)
        return Response(text, media_type="text/plain; version=0.0.4; charset=utf-8")

    async def about() -> dict[str, Any]:
        """What is served."""
        guarded = service.guarded
        return {
            "oodshape": oodshape.__version__,
            "method": guarded.method,
            "classes": [*guarded.names] or guarded.classes,
            "alpha": guarded.alpha,
            "calibration_images": len(guarded.calibration),
        }

    app.post("/predict", **PREDICT)(predict)
    app.get("/health", responses=STATUS)(health)
    app.get("/ready", responses=STATUS | {503: STATUS[200] | {"description": "It starts or stops."}})(ready)
    app.get("/metrics", response_class=Response, responses=TEXT)(metrics)
    app.get("/")(about)

    @app.exception_handler(Exception)
    async def failed(request: Request, error: Exception) -> Response:
        say("failed", level=logging.ERROR, path=request.url.path, error=repr(error))
        return _answer(500, {"detail": "the service failed; its log says why"})

    return app
