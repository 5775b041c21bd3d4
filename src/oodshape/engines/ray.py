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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Unpack

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.core.options import (
    HeadKeywords,
    HeadOptions,
    ModelKeywords,
    ModelOptions,
    RunKeywords,
    RunOptions,
    make_options,
    takes_options,
)
from oodshape.engines.actors import AGAIN, ActorPool, map_shards, start_ray, worker_errors
from oodshape.engines.workers import Collector, Job, ShardScorer, merged_parts, name_shard_file
from oodshape.guard.fit.collect import resolve_recipe
from oodshape.guard.fit.split import check_enough_to_split, refuse_copies
from oodshape.guard.guard import Guard
from oodshape.guard.scoring.resumable_scores import identify_run, plan_shard
from oodshape.guard.scoring.score_formats import Counts, find_writer, merge_shards
from oodshape.guard.scoring.score_formats import RowCounter as Rows
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.duplicates import find_copies
from oodshape.images.sources.image_set import Shard, limit_images
from oodshape.images.sources.open_images import Given, Listing, open_images, stream_images
from oodshape.methods.detector import Method
from oodshape.metrics.conformal import check_enough, images_needed
from oodshape.networks.loading import Model, OpenNet, open_model, override

__all__ = ["ActorPool", "RunTimings", "collect", "fit_guard", "score"]
DEFAULT = RunOptions()
FEWEST = 16  # shards that a run is cut into at least: what a worker that dies may lose
LARGEST = 4096  # images of a shard at most


class RayKeywords(ModelKeywords, HeadKeywords, RunKeywords, total=False):
    """Keywords of a fit on Ray."""


@dataclass(frozen=True)
class RunTimings:
    """How many images a run went over, and how long it took."""

    images: int
    failed: int
    seconds: float

    def line(self) -> str:
        """Images per second, and failures."""
        return f"{self.images / max(self.seconds, 1e-9):,.0f} images per second, {self.failed:,} failed"


def collect(
    source: OpenNet,
    images: Given,
    out: Path,
    *,
    method: str | Method = "auto",
    hold_out: bool = False,
    preprocessing: Preprocessing | None = None,
    upright: bool = False,
    limit: int | None = None,
    run: RunOptions = DEFAULT,
    shards: int | None = None,
    pool: ActorPool | None = None,
) -> RunTimings:
    """Write what a fit needs of all images to one part; `source` was opened by a spec, as workers open it again."""
    begun, ray = time.monotonic(), start_ray()
    given = limit_images(open_images(images, upright=upright), limit)
    count = shards or _count_shards(len(given), run.batch_size)
    job = Job.of(source, count, run)
    told = {
        "job": job,
        "images": given,
        "recipe": resolve_recipe(method),
        "preprocessing": preprocessing or override(source.native),
        "upright": upright,
        "hold_out": hold_out,
    }
    # on the driver's node: what lies on another one is lost with it
    here = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(ray.get_runtime_context().get_node_id(), False)
    merge = ray.remote(max_retries=AGAIN, num_cpus=0, scheduling_strategy=here)(merged_parts)
    waiting: list[Any] = []
    lost = 0
    with worker_errors():
        for row in map_shards(Collector, told, range(1, count + 1), pool, given.name, run.progress):
            waiting.append(ray.put(row["part"]))
            lost += row["lost"]
            if len(waiting) == 4:  # in tasks, and never many parts in memory at once
                waiting = [merge.remote(*waiting)]
        data = ray.get(merge.remote(*waiting))
    with replacing(out) as temporary:
        temporary.write_bytes(data)
    return RunTimings(len(given), lost, time.monotonic() - begun)


@takes_options(ModelOptions, HeadOptions, RunOptions)
def fit_guard(
    model: Model,
    *,
    images: Given,
    calibrate: Given | None = None,
    method: str | Method = "auto",
    alpha: float = 0.05,
    per_class: bool = False,
    preprocessing: Preprocessing | None = None,
    classes: tuple[str, ...] = (),
    upright: bool = False,
    limit: int | None = None,
    shards: int | None = None,
    pool: ActorPool | None = None,
    on_timings: Callable[[RunTimings], object] | None = None,
    **options: Unpack[RayKeywords],
) -> Guard:
    """Fit a guard as `Guard.fit` does, with the training images on the actors; the model is a spec, or opened by one.

    `on_timings` is called with the timings of the collection.
    """
    run = make_options(RunOptions, options)
    source = open_model(model, **vars(make_options(ModelOptions, options)), **vars(make_options(HeadOptions, options)))
    given = open_images(images, upright=upright)
    held = None if calibrate is None else open_images(calibrate, upright=upright)
    if held is None:  # as `Guard.fit` does, before any image is read
        check_enough_to_split(min(len(given), limit or len(given)), alpha)
    else:
        refuse_copies(find_copies(held, given), len(held))
        check_enough(len(held), alpha)
        held = held if limit is None else limit_images(held, max(limit, images_needed(alpha)))
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.safetensors"
        timings = collect(
            source,
            given,
            part,
            hold_out=held is None,
            method=method,
            preprocessing=preprocessing,
            upright=upright,
            limit=limit,
            run=run,
            shards=shards,
            pool=pool,
        )
        if on_timings is not None:
            on_timings(timings)
        return Guard.fit(
            source,
            parts=[part],
            calibrate=held,
            method=method,
            preprocessing=preprocessing,
            alpha=alpha,
            per_class=per_class,
            classes=classes,
            **vars(run),
        )


def score(
    guard: Guard, images: Given, source: OpenNet, out: Path, run: RunOptions = DEFAULT, *, pool: ActorPool | None = None
) -> tuple[Counts, RunTimings]:
    """Write the scores of all images; shards that an earlier run has finished are not scored again.

    `source` is the guard's network, opened by a spec.
    """
    begun, _ = time.monotonic(), start_ray()
    write = find_writer(out)
    listing = stream_images(images)
    if isinstance(listing, Listing):
        listing = listing.files(upright=False)  # one that has gone later is an error of its own, and moves no other
    total = listing.count() or 0
    folder = out.with_name(f"{out.name}.shards")
    folder.mkdir(exist_ok=True)
    count = _count_shards(total, run.batch_size)
    job = Job.of(source, count, run)
    who = identify_run(guard, run.batch_size, source.classifier.precision)
    paths = [folder / name_shard_file(number, count) for number in range(1, count + 1)]
    left = [number for number, path in enumerate(paths, 1) if not path.exists()]
    note = plan_shard(listing, Shard(1, count), run.batch_size, who, paths[0]).note
    before = _begun(folder)
    if before not in (None, (count, note)):
        raise InputError(f"{folder} was begun with another guard, batch size or other images; remove it to start anew")
    with replacing(folder / "run.json") as temporary:
        temporary.write_text(json.dumps([count, note]))
    told = {"job": job, "guard": guard, "listing": listing, "folder": folder.resolve()}
    scored = 0
    with worker_errors():
        for row in map_shards(ShardScorer, told, left, pool, listing.name, run.progress):
            scored += row["tally"].images - row["tally"].resumed
    rows, named = merge_shards(paths)
    counter = Rows(rows, None)
    with replacing(out) as temporary:
        write(temporary, counter, named, "")
    shutil.rmtree(folder)  # with what a killed worker may have left there
    found = counter.tally
    kept = Counts(found.images, found.accepted, found.rejected, found.unreadable, total - scored, found.first_error)
    return kept, RunTimings(scored, found.unreadable, time.monotonic() - begun)


def _count_shards(images: int, batch_size: int) -> int:
    """How many shards a run is cut into: no more than batches."""
    batches = -(-images // batch_size)
    return max(1, min(batches, max(FEWEST, -(-images // LARGEST))))


def _begun(folder: Path) -> tuple[Any, ...] | None:
    """(The number of shards, the first one's note) of an earlier run."""
    try:
        return tuple(json.loads((folder / "run.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None
