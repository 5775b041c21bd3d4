"""Ray as the engine: shards of images go to a pool of actors, each with the network loaded once.

A fit is a map-side reduce: an actor makes one part per shard, tasks add parts up, and the fit itself is that of
`Guard.fit(parts=...)`. Scores go to one Parquet file per shard in a folder that all machines see, then into one file;
a run that was stopped goes on there. Images were listed once, on the driver. A local Ray is started where none
is running; RAY_ADDRESS names a cluster.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodshape.core.errors import InputError, import_optional
from oodshape.core.files import one_line, replacing
from oodshape.core.options import RunOptions
from oodshape.core.progress import progress_bar
from oodshape.engines.workers import Collector, Job, ShardScorer, merge_packed_parts, name_shard_file
from oodshape.guard.fit.collect import resolve_recipe
from oodshape.guard.fit.split import check_images
from oodshape.guard.guard import Guard
from oodshape.guard.scoring.resumable_scores import identify_run, plan_shard
from oodshape.guard.scoring.score_formats import Counts, check_format, merge_shards, write_scores
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import Shard, limit_images
from oodshape.images.sources.open_images import Given, open_images, stream_images
from oodshape.methods.detector import Method
from oodshape.metrics.conformal import images_needed
from oodshape.networks.loading import OpenNet, override

FEWEST = 16  # shards that a run is cut into at least: what a worker that dies may lose
LARGEST = 4096  # images of a shard at most
FAILED = "failed"  # the column of a row that says why a worker gave up
AGAIN = 3  # times that a shard is begun anew when its worker has died
LESS_MEMORY = "if memory ran out, take fewer actors (--engine ray:N) or --workers, or a smaller --batch-size"


@dataclass(frozen=True)
class ActorPool:
    """How many actors run (None: one per GPU, or per two cores); each takes a core, and a GPU if there is one."""

    actors: int | None = None


def fit_guard(
    source: OpenNet,
    images: Given,
    calibrate: Given | None = None,
    run: RunOptions = RunOptions(),
    *,
    method: str | Method = "auto",
    alpha: float = 0.05,
    per_class: bool = False,
    preprocessing: Preprocessing | None = None,
    classes: tuple[str, ...] = (),
    upright: bool = False,
    limit: int | None = None,
    shards: int | None = None,
    pool: ActorPool | None = None,
) -> tuple[Guard, str]:
    """Fit a guard as `Guard.fit` does, with the training images on the actors; `source` was opened by a spec.

    Returns the guard, and how fast the images were read.
    """
    begun = time.monotonic()
    given = open_images(images, upright=upright)
    held = None if calibrate is None else open_images(calibrate, upright=upright)
    check_images(given, held, alpha, limit)
    if held is not None and limit is not None:
        held = limit_images(held, max(limit, images_needed(alpha)))
    given = limit_images(given, limit)
    count = shards or _count_shards(len(given), run.batch_size)
    recipe = {"recipe": resolve_recipe(method), "preprocessing": preprocessing or override(source.native)}
    told = {"job": Job.of(source, count, run), "images": given, "upright": upright, "hold_out": held is None, **recipe}
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.safetensors"
        lost = _collect_part(told, count, part, pool, run.progress)
        speed = _describe_speed(len(given), lost, begun)
        options: dict[str, Any] = {"method": method, "preprocessing": preprocessing, "classes": classes, **vars(run)}
        guard = Guard.fit(source, parts=[part], calibrate=held, alpha=alpha, per_class=per_class, **options)
    return guard, speed


def _collect_part(told: dict[str, Any], shards: int, out: Path, pool: ActorPool | None, progress: bool | None) -> int:
    """Write what a fit needs of all shards to one part; return how many images could not be read."""
    ray = start_ray()
    # on the driver's node: what lies on another one is lost with it
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), False)
    merge = ray.remote(max_retries=AGAIN, num_cpus=0, scheduling_strategy=here)(merge_packed_parts)
    waiting: list[Any] = []
    lost = 0
    with worker_errors():
        for row in map_shards(Collector, told, range(1, shards + 1), pool, told["images"].name, progress):
            waiting.append(ray.put(row["part"]))
            lost += row["lost"]
            if len(waiting) == 4:  # in tasks, and never many parts in memory at once
                waiting = [merge.remote(*waiting)]
        out.write_bytes(ray.get(merge.remote(*waiting)))
    return lost


def score(
    guard: Guard,
    images: Given,
    source: OpenNet,
    out: Path,
    run: RunOptions = RunOptions(),
    *,
    pool: ActorPool | None = None,
) -> tuple[Counts, str]:
    """Write the scores of all images; shards that an earlier run has finished are not scored again.

    `source` is the guard's network, opened by a spec. Returns the counts, and how fast the images were scored.
    """
    begun, _ = time.monotonic(), start_ray()
    check_format(out)
    listing = stream_images(open_images(images))
    total = listing.count() or 0
    folder = out.with_name(f"{out.name}.shards")
    folder.mkdir(exist_ok=True)
    count = _count_shards(total, run.batch_size)
    job = Job.of(source, count, run)
    who = identify_run(guard, run.batch_size, source.classifier.precision)
    paths = [folder / name_shard_file(number, count) for number in range(1, count + 1)]
    left = [number for number, path in enumerate(paths, 1) if not path.exists()]
    note = plan_shard(listing, Shard(1, count), run.batch_size, who)[1]
    before = _read_earlier_run(folder)
    if before not in (None, (count, note)):
        raise InputError(f"{folder} was begun with another guard, batch size or other images; remove it to start again")
    with replacing(folder / "run.json") as temporary:
        temporary.write_text(json.dumps([count, note]))
    told = {"job": job, "guard": guard, "listing": listing, "folder": folder.resolve()}
    scored = 0
    with worker_errors():
        for row in map_shards(ShardScorer, told, left, pool, listing.name, run.progress):
            scored += row["tally"].images - row["tally"].resumed
    rows, named = merge_shards(paths)
    counts = Counts(resumed=total - scored)
    write_scores(out, counts.count(rows), named=named)
    shutil.rmtree(folder)  # with what a killed worker may have left there
    return counts, _describe_speed(scored, counts.unreadable, begun)


def _describe_speed(images: int, failed: int, begun: float) -> str:
    return f"{images / (time.monotonic() - begun):,.0f} images per second, {failed:,} failed"


def _count_shards(images: int, batch_size: int) -> int:
    """How many shards a run is cut into: no more than batches."""
    batches = -(-images // batch_size)
    return max(1, min(batches, max(FEWEST, -(-images // LARGEST))))


def _read_earlier_run(folder: Path) -> tuple[Any, ...] | None:
    """(The number of shards, the first one's note) of an earlier run."""
    try:
        return tuple(json.loads((folder / "run.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


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
    there = ray.cluster_resources()
    most = (pool or ActorPool()).actors or max(1, int(there.get("GPU") or there.get("CPU", 1) // 2))
    size = min(most, len(numbers))
    actor = ray.remote(_Worker).options(num_cpus=1, num_gpus=int("GPU" in there))
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
