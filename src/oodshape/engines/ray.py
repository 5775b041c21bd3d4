"""Ray Data as the engine: shards of images go to a pool of actors, each with the network loaded once.

A fit is a map-side reduce: an actor makes one part per shard, tasks add parts up, and the fit itself is that of
`Guard.fit(parts=...)`. Scores go to one Parquet file per shard in a folder that all machines see, then into one file;
a run that was stopped goes on there. Images were listed once, by whoever started it. A local Ray is started where none
is running; RAY_ADDRESS names a cluster.
"""

from __future__ import annotations

import json
import logging
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.core.progress import progress_bar
from oodshape.core.reading import one_line
from oodshape.engines.work import Collector, Job, Listed, ShardScorer, merged_parts, name_of
from oodshape.guard.guard import Guard
from oodshape.guard.parts import refuse_copies
from oodshape.guard.recipe import recipe_of
from oodshape.guard.score import rows_of, see
from oodshape.guard.score_file import Counter as Rows
from oodshape.guard.score_file import Tally, identity, writer
from oodshape.guard.score_shards import merged, shard_of
from oodshape.images.copies import copies
from oodshape.images.image_set import limited
from oodshape.images.in_memory import PictureListing, Pictures
from oodshape.images.listing import Given, image_set, one_by_one
from oodshape.images.preprocessing import Preprocessing
from oodshape.images.shards import Shard
from oodshape.methods.detector import Method
from oodshape.networks.opening import Source, open_model, prepared

FEWEST = 16  # shards that a run is cut into at least: what a worker that dies may lose
LARGEST = 4096  # images of a shard at most
AGAIN = 3  # times that a shard is begun anew when its worker has died


@dataclass(frozen=True)
class Pool:
    """How many actors there are, and what each takes; None: one per GPU, or per two cores."""

    actors: int | None = None
    num_gpus: float = 0.0
    num_cpus: float = 1.0

    def size(self) -> int:
        """The number of actors."""
        if self.actors is not None:
            return self.actors
        there = _ray().cluster_resources()
        return max(1, int(there.get("GPU", 0) / self.num_gpus if self.num_gpus else there.get("CPU", 1) // 2))


@dataclass(frozen=True)
class Took:
    """How long a run took, and where its workers' seconds went."""

    images: int
    failed: int
    seconds: float
    spent: dict[str, float]

    def line(self) -> str:
        """What people want to know."""
        parts = ", ".join(
            f"{name} {self.spent.get(name, 0.0):.1f} s" for name in ("read", "decode", "network", "score")
        )
        speed = self.images / max(self.seconds, 1e-9)
        return f"{speed:,.0f} images per second, {self.failed:,} failed; workers spent {parts}"


def collect(
    source: Source,
    images: Given,
    out: Path,
    *,
    network: dict[str, Any] | None = None,
    method: str | Method = "auto",
    hold_out: bool = False,
    exportable: bool = False,
    preprocessing: Preprocessing | None = None,
    upright: bool = False,
    limit: int | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    shards: int | None = None,
    pool: Pool | None = None,
    progress: bool | None = None,
) -> Took:
    """Write what a fit needs of all images to one part; `source` was opened by a name, and `network` says how."""
    begun, ray = time.monotonic(), _started()
    given = limited(image_set(images, upright=upright), limit)
    count = shards or shards_for(len(given), batch_size)
    job = Job(_named(source), count, _opening(source, network), batch_size, workers)
    told = {
        "job": job,
        "images": given,
        "recipe": recipe_of(method, exportable),
        "preprocessing": preprocessing or prepared(source.native),
        "upright": upright,
        "hold_out": hold_out,
    }
    merge = ray.remote(max_retries=AGAIN)(merged_parts)
    waiting: list[Any] = []
    lost, spent = 0, Counter[str]()
    with _said():
        for row in _mapped(Collector, told, range(1, count + 1), pool, given.name, progress):
            waiting.append(ray.put(row["part"]))
            lost += row["lost"]
            spent.update(json.loads(row["spent"]))
            if len(waiting) == 4:  # in tasks, and never many parts in memory at once
                waiting = [merge.remote(*waiting)]
        data = ray.get(merge.remote(*waiting))
    with replacing(out) as temporary:
        temporary.write_bytes(data)
    return Took(len(given), lost, time.monotonic() - begun, dict(spent))


def fit_guard(model: str, *, images: Given, calibrate: Given | None = None, **how: Any) -> Guard:
    """As `Guard.fit`, with the training images on the actors; `pool`, `shards` and `network` are this engine's own."""
    own = {name: how.pop(name) for name in ("pool", "shards", "network") if name in how}
    network = own.get("network") or {}
    source = open_model(model, **network)
    if calibrate is not None:
        held = image_set(calibrate)
        refuse_copies(copies(held, image_set(images)), len(held))
    both = ("method", "exportable", "preprocessing", "upright", "limit", "batch_size", "workers", "progress")
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.safetensors"
        told = {name: how[name] for name in both if name in how}
        collect(source, images, part, hold_out=calibrate is None, **told, **own)
        rest = {name: value for name, value in how.items() if name not in ("limit", "upright")}
        return Guard.fit(source, parts=[part], calibrate=calibrate, **rest)


def score(
    guard: Guard,
    images: Given,
    model: str,
    out: Path,
    *,
    network: dict[str, Any] | None = None,
    batch_size: int = 32,
    workers: int | None = None,
    shards: int | None = None,
    pool: Pool | None = None,
    progress: bool | None = None,
) -> tuple[Tally, Took]:
    """Write the scores of all images; shards that an earlier run has finished are not scored again."""
    begun, _ = time.monotonic(), _started()
    write = writer(out)
    listing: Any = images if isinstance(images, Listed) else Listed.of(one_by_one(images))
    source = guard.opened(model, **(network or {}))
    total = sum(1 for _ in listing)
    folder = out.with_name(f"{out.name}.shards")
    folder.mkdir(exist_ok=True)
    count = shards or shards_for(total, batch_size)
    job = Job(_named(source), count, _opening(source, network), batch_size, workers)
    who = identity(guard, batch_size, source.classifier.precision)
    paths = [folder / name_of(number, count) for number in range(1, count + 1)]
    left = [number for number, path in enumerate(paths, 1) if not path.exists()]
    note = shard_of(listing, Shard(1, count), batch_size, who, paths[0]).note
    before = _begun(folder)
    if before not in (None, (count, note)):
        raise InputError(f"{folder} was begun with another guard, batch size or other images; remove it to start anew")
    (folder / "run.json").write_text(json.dumps([count, note]))
    told = {"job": job, "guard": guard, "listing": listing, "folder": folder.resolve()}
    spent, scored = Counter[str](), 0
    with _said():
        for row in _mapped(ShardScorer, told, left, pool, listing.name, progress):
            spent.update(json.loads(row["spent"]))
            tally = json.loads(row["tally"])
            scored += tally["images"] - tally["resumed"]
    rows, named = merged(paths)
    counter = Rows(rows, None)
    with replacing(out) as temporary:
        write(temporary, counter, named, "")
    for path in [*paths, folder / "run.json"]:
        path.unlink()
    folder.rmdir()
    found = counter.tally
    kept = Tally(found.images, found.accepted, found.rejected, found.unreadable, total - scored, found.first_error)
    return kept, Took(scored, found.unreadable, time.monotonic() - begun, dict(spent))


class GuardScorer:
    """Scores in one's own pipeline: `ds.map_batches(GuardScorer, fn_constructor_kwargs={...}, compute=...)`.

    Takes batches with a column of encoded images or of uint8 arrays, and gives them `label`, `score`, `p_value`,
    `accepted` and `error` beside their other columns.
    """

    def __init__(self, guard: str, model: str, column: str = "bytes", batch_size: int = 32, **network: Any) -> None:
        """Load the guard and its network, once per actor."""
        self.guard, self.column, self.batch_size = Guard.load(guard), column, batch_size
        self.source = self.guard.opened(model, **network)

    def __call__(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The batch with what the guard says."""
        listing = PictureListing(Pictures(list(batch[self.column]), "batch"))
        seen = see(self.guard, self.source, listing, iter(listing), self.batch_size, workers=0)
        rows = [row for each in seen for row in rows_of(self.guard, each)]
        columns = ("label", "score", "p_value", "accepted", "error")
        kept = {name: values for name, values in batch.items() if name != self.column}
        return kept | {name: [getattr(row, name) for row in rows] for name in columns}


def shards_for(images: int, batch_size: int) -> int:
    """How many shards a run is cut into: no more than batches."""
    batches = -(-images // batch_size)
    return max(1, min(batches, max(FEWEST, -(-images // LARGEST))))


def _mapped(
    work: type, told: dict[str, Any], shards: Any, pool: Pool | None, name: str, progress: bool | None
) -> Iterator[dict[str, Any]]:
    """The rows that workers give for each shard, as they come."""
    ray = _ray()
    numbers = list(shards)
    if not numbers:
        return
    pool = pool or Pool()
    size = min(pool.size(), len(numbers))
    ray.data.DataContext.get_current().enable_progress_bars = False  # there is our own
    logging.getLogger("ray.data").setLevel(logging.ERROR)
    ref = ray.put(told)  # once, not once per shard
    data = ray.data.from_items([{"shard": number} for number in numbers], override_num_blocks=len(numbers))
    rows = data.map_batches(
        _Worker,
        fn_constructor_kwargs={"work": work, "told": [ref]},
        batch_size=1,
        compute=ray.data.ActorPoolStrategy(size=size),
        num_cpus=pool.num_cpus,
        num_gpus=pool.num_gpus or None,
        ray_remote_args_fn=partial(dict, max_restarts=AGAIN, max_task_retries=AGAIN),
    )
    with progress_bar(f"{name} on {size} actors", len(numbers), progress, "shards") as report:
        for done, row in enumerate(rows.iter_rows(), 1):
            yield row
            report(done)


class _Worker:
    """A worker that fetches what it is told once."""

    def __init__(self, work: Callable[..., Any], told: list[Any]) -> None:
        self.work = work(**_ray().get(told[0]))

    def __call__(self, batch: dict[str, Any]) -> Any:
        return self.work(batch)


@contextmanager
def _said() -> Iterator[None]:
    """What goes wrong on a worker as one line: its own error, or how it died."""
    exceptions = _ray().exceptions
    try:
        yield
    except exceptions.RayError as error:
        cause: Any = error
        while isinstance(cause, exceptions.RayTaskError) and cause.cause is not None:
            cause = cause.cause
        while cause.__cause__ is not None:
            cause = cause.__cause__
        if isinstance(cause, InputError):
            raise InputError(str(cause)) from None
        if isinstance(cause, (MemoryError, exceptions.OutOfMemoryError)) or "memory" in str(error).lower():
            raise InputError(
                "a worker ran out of memory: take fewer actors (--actors), a smaller --batch-size or fewer --workers"
            ) from None
        if isinstance(cause, exceptions.ActorError):
            raise InputError(
                f"a worker died {AGAIN + 1} times on one shard, often for want of memory: take fewer actors (--actors) "
                "or a smaller --batch-size, and look into Ray's logs"
            ) from None
        raise InputError(f"a worker failed: {type(cause).__name__}: {one_line(cause)}") from None


def _begun(folder: Path) -> tuple[Any, ...] | None:
    """(The number of shards, the first one's note) of an earlier run."""
    try:
        return tuple(json.loads((folder / "run.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def _named(source: Source) -> str:
    if not source.spec:
        raise InputError(
            "workers open the network by its name: give a spec such as timm:NAME or package.module:function"
        )
    return source.spec


def _opening(source: Source, network: dict[str, Any] | None) -> dict[str, Any]:
    """How workers open the network: as here, with the head that was found."""
    head = source.classifier.head_name
    return {**(network or {}), **({"head": head} if head else {})}


def _started() -> Any:
    """Ray, running: the cluster of RAY_ADDRESS, or a local one."""
    ray = _ray()
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, include_dashboard=False, logging_level="error")
        except Exception as error:  # Ray has no error of its own for this
            raise InputError(f"Ray could not be started: {one_line(error)}") from None
    return ray


def _ray() -> Any:
    try:
        import ray
        import ray.data
    except ImportError:
        raise InputError("the engine ray needs Ray: pip install 'oodshape[ray]'") from None
    return ray
