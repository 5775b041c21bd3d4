"""Pool: the scoring processes, the queue of requests that wait for one, and the end of work that nobody waits for."""

from __future__ import annotations

import asyncio
import heapq
import json
import logging
import multiprocessing
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from tempfile import NamedTemporaryFile
from typing import Any

from oodshape.core.errors import InputError
from oodshape.guard.service.logs import log_event
from oodshape.guard.service.settings import Settings
from oodshape.guard.service.worker import DECODE_SECONDS, Json, run_worker

GRACE = 1.0  # seconds that a slice may go on after its request has ended
METHODS = multiprocessing.get_all_start_methods()


class _Worker:
    """One scoring process and the connection to it; a thread of the pool talks to it."""

    def __init__(self, context: Any, settings: Settings, lock: str) -> None:
        self._context, self._arguments = context, (settings, lock)
        self.jobs = 0  # that were begun
        self.busy = False
        self.start()

    def start(self) -> None:
        connection, other = self._context.Pipe()
        process = self._context.Process(target=run_worker, args=(other, *self._arguments), daemon=True)
        process.start()
        other.close()
        self.connection, self.process = connection, process  # one that has started: `close` may end it at any time
        try:
            self.about = json.loads(self.connection.recv_bytes())
        except EOFError:
            raise InputError(f"a scoring process ended at its start, exit status {self.process.exitcode}") from None
        if "error" in self.about:
            raise InputError(self.about["error"])

    def ask(self, content_type: str, body: bytearray, first: int, slow: bool) -> Json:
        try:
            job = {"content_type": content_type, "size": len(body), "first": first, "slow": slow}
            self.connection.send_bytes(json.dumps(job).encode())
            self.connection.send_bytes(body)
            answer: Json = json.loads(self.connection.recv_bytes())
            return answer
        except (EOFError, OSError):
            self.stop()
        if not slow:  # the process may have ended before, or for an image that takes more time
            return {"slow": True, "rows": [], "images": -1}
        if self.process.exitcode == -getattr(signal, "SIGPROF", 0):
            return {"status": 413, "detail": f"an image takes more than {DECODE_SECONDS} seconds to decode"}
        status = 400 if (self.process.exitcode or 0) < 0 else 500  # a decoder that crashed, or an error of ours
        return {"status": status, "detail": "the process that scored these images ended; the log says more"}

    def stop(self) -> None:
        self.process.kill()
        self.process.join()
        self.connection.close()


class WorkerPool:
    """The scoring processes of a service."""

    def __init__(self, settings: Settings) -> None:
        context: Any = multiprocessing.get_context("forkserver" if "forkserver" in METHODS else "spawn")
        if "forkserver" in METHODS:  # a process is replaced in milliseconds: its imports are done
            context.set_forkserver_preload(["oodshape.guard.service.worker", "onnxruntime"])
        self._lock = NamedTemporaryFile(prefix="oodshape-")  # noqa: SIM115 (open as long as the pool)
        self._workers = [_Worker(context, settings, self._lock.name) for _ in range(settings.workers)]
        self._idle = [*self._workers]
        self._waiting: list[tuple[int, int, float, asyncio.Future[_Worker]]] = []  # a heap
        self._numbers = count()
        self._threads = ThreadPoolExecutor(settings.workers, "scoring")
        self._closed = False
        self.restarts = 0
        self.about: Json = self._workers[0].about

    async def ask(self, slices: int, content_type: str, body: bytearray, first: int, *, slow: bool) -> Json:
        """The answer of `Scorer.score`. Requests that had fewer slices go first: small ones overtake large ones."""
        loop = asyncio.get_running_loop()
        worker = self._idle.pop() if self._idle else await self._wait(slices)
        worker.jobs, worker.busy = worker.jobs + 1, True
        answer = loop.run_in_executor(self._threads, worker.ask, content_type, body, first, slow)
        answer.add_done_callback(lambda _: self._release(worker))
        try:
            return await asyncio.shield(answer)
        except asyncio.CancelledError:
            loop.call_later(GRACE, self._end, worker, worker.jobs)
            raise

    async def _wait(self, slices: int) -> _Worker:
        turn: asyncio.Future[_Worker] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._waiting, (slices, next(self._numbers), time.monotonic(), turn))
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._hand_on(turn.result())
            raise

    def _end(self, worker: _Worker, job: int) -> None:
        if worker.busy and worker.jobs == job:
            worker.process.kill()

    def _release(self, worker: _Worker) -> None:
        worker.busy = False
        if worker.process.is_alive():
            return self._hand_on(worker)
        if self._closed:
            return
        log_event("worker ended", level=logging.WARNING, exit_status=worker.process.exitcode)
        self.restarts += 1
        self._restart(worker)

    def _restart(self, worker: _Worker) -> None:
        def started(result: asyncio.Future[None]) -> None:
            error = result.exception()
            if error is None:
                return self._hand_on(worker)
            log_event("worker does not start", level=logging.ERROR, error=str(error))
            asyncio.get_running_loop().call_later(1.0, self._restart, worker)

        if not self._closed:
            asyncio.get_running_loop().run_in_executor(self._threads, worker.start).add_done_callback(started)

    def _hand_on(self, worker: _Worker) -> None:
        while self._waiting:
            *_, turn = heapq.heappop(self._waiting)
            if not turn.done():
                return turn.set_result(worker)
        self._idle.append(worker)

    @property
    def longest_wait(self) -> float:
        """Seconds that the first request without any slice has waited."""
        new = [since for slices, _, since, turn in self._waiting if not slices and not turn.done()]
        return time.monotonic() - min(new) if new else 0.0

    def close(self) -> None:
        """End all processes."""
        self._closed = True
        for worker in self._workers:
            worker.process.kill()
        self._threads.shutdown(wait=True, cancel_futures=True)
        for worker in self._workers:
            worker.stop()
        self._lock.close()
