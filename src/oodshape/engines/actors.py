"""A pool of Ray's actors: each makes its worker once, takes one shard after the other, and can be replaced."""

from __future__ import annotations

import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oodshape.core.errors import InputError, import_optional
from oodshape.core.files import one_line
from oodshape.core.progress import progress_bar

FAILED = "failed"  # the column of a row that says why a worker gave up
AGAIN = 3  # times that a shard is begun anew when its worker has died
LESS_MEMORY = "if memory ran out, take fewer actors (--engine ray:N) or --workers, or a smaller --batch-size"


@dataclass(frozen=True)
class ActorPool:
    """How many actors run (None: one per GPU, or per two cores); each takes a core, and a GPU if there is one."""

    actors: int | None = None

    @property
    def gpus(self) -> int:
        """The GPUs that each actor takes."""
        return int("GPU" in _import_ray().cluster_resources())

    def size(self) -> int:
        """The number of actors."""
        if self.actors is not None:
            return self.actors
        there = _import_ray().cluster_resources()
        return max(1, int(there["GPU"] if self.gpus else there.get("CPU", 1) // 2))


def start_ray() -> Any:
    """Start Ray: connect to the cluster of RAY_ADDRESS, or start a local one."""
    ray = _import_ray()
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, include_dashboard=False, logging_level="error")
        except Exception as error:  # Ray has no error of its own for this
            raise InputError(f"Ray could not be started: {one_line(error)}") from None
    return ray


def map_shards(
    work: type, told: dict[str, Any], shards: Iterable[int], pool: ActorPool | None, name: str, progress: bool | None
) -> Iterator[dict[str, Any]]:
    """Yield the rows of each shard as workers finish them; `told` are the arguments of a worker."""
    ray = _import_ray()
    numbers = list(shards)
    if not numbers:
        return
    pool = pool or ActorPool()
    size = min(pool.size(), len(numbers))
    actor = ray.remote(_Worker).options(num_cpus=1, num_gpus=pool.gpus)
    ref = ray.put(told)  # once, not once per shard
    left, deaths, done = numbers[::-1], Counter[int](), 0
    # What each worker is at: the number of a shard, or 0 until it is made. Of a node that has died, shards go to the
    # workers of other nodes; a new worker has none until there is room for it.
    running: dict[Any, tuple[Any, int]] = {}
    idle: list[Any] = []

    def start() -> None:
        worker = actor.remote(work, [ref])
        running[worker.ready.remote()] = worker, 0

    for _ in range(size):
        start()
    with progress_bar(f"{name} on {size} actors", len(numbers), progress, "shards") as report:
        while done < len(numbers):
            while left and idle:
                worker, number = idle.pop(), left.pop()
                running[worker.run.remote(number)] = worker, number
            found = ray.wait(list(running), num_returns=1)[0][0]
            worker, number = running.pop(found)
            try:
                row = ray.get(found)
            except ray.exceptions.RayError:
                deaths[number] += 1
                if deaths[number] > AGAIN:
                    raise
                left.extend([number] if number else [])
                start()
                continue
            if FAILED in row:
                raise InputError(row[FAILED])
            idle.append(worker)
            if number:
                done += 1
                yield row
                report(done)


class _Worker:
    """A worker that fetches what it is told once; its errors come back as rows, as Ray drops what they say."""

    def __init__(self, work: Callable[..., Any], told: list[Any]) -> None:
        try:
            self.work: Callable[[int], dict[str, Any]] = work(**_import_ray().get(told[0]))
        except Exception as error:
            said = _explain_failure(error)  # to be said where there is someone to hear it
            self.work = lambda number: {FAILED: said}

    def ready(self) -> dict[str, Any]:
        """Nothing, once the worker is made."""
        return {}

    def run(self, number: int) -> dict[str, Any]:
        """The row of a shard."""
        try:
            return self.work(number)
        except Exception as error:
            traceback.print_exc()  # into Ray's logs
            return {FAILED: _explain_failure(error)}


@contextmanager
def worker_errors() -> Iterator[None]:
    """Turn errors of workers into one line."""
    exceptions = _import_ray().exceptions
    try:
        yield
    except exceptions.RayError as error:
        cause: Any = error
        while isinstance(cause, exceptions.RayTaskError) and cause.cause is not None:
            cause = cause.cause
        if isinstance(cause, exceptions.RayActorError):
            raise InputError(f"a worker died {AGAIN + 1} times on one shard, see Ray's logs; {LESS_MEMORY}") from None
        raise InputError(_explain_failure(cause)) from None


def _explain_failure(error: BaseException) -> str:
    """Describe an error in one line, with a fix if there is one."""
    if isinstance(error, InputError):
        return str(error)
    return f"a worker failed: {type(error).__name__}: {one_line(error)}; {LESS_MEMORY}"


def _import_ray() -> Any:
    """Import Ray, or say how to install it."""
    return import_optional("ray", "ray", "the engine ray")
