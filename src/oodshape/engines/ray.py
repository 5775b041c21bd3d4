"""Ray Data as the engine: shards of images go to a pool of actors, each with the network loaded once.

A fit is a map-side reduce: an actor makes one part per shard, tasks add parts up, and the fit itself is that of
`Guard.fit(parts=...)`. Scores go to one Parquet file per shard in a folder that all machines see, then into one file;
a run that was stopped goes on there. Images were listed once, by whoever started it. A local Ray is started where none
is running; RAY_ADDRESS names a cluster.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.engines.actors import AGAIN, Pool, mapped, one_line_each, started
from oodshape.engines.scorer import GuardScorer
from oodshape.engines.took import Took
from oodshape.engines.work import Collector, Job, ShardScorer, merged_parts, name_of
from oodshape.guard.fit.collect import recipe_of
from oodshape.guard.fit.split import check_enough_to_split, refuse_copies
from oodshape.guard.guard import Guard
from oodshape.guard.scoring.score_file import identity, plan_shard
from oodshape.guard.scoring.score_table import Counter as Rows
from oodshape.guard.scoring.score_table import Tally, merge_shards, writer
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.overlap import copies
from oodshape.images.sources.image_set import Shard, limited
from oodshape.images.sources.listing import Given, Listing, image_set, one_by_one
from oodshape.methods.detector import Method
from oodshape.metrics.conformal import check_enough, images_needed
from oodshape.networks.loading import Source, open_model, prepared

__all__ = ["GuardScorer", "Pool", "Took", "collect", "fit_guard", "score"]
FEWEST = 16  # shards that a run is cut into at least: what a worker that dies may lose
LARGEST = 4096  # images of a shard at most


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
    begun, ray = time.monotonic(), started()
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
    with one_line_each():
        for row in mapped(Collector, told, range(1, count + 1), pool, given.name, progress):
            waiting.append(ray.put(row["part"]))
            lost += row["lost"]
            spent.update(json.loads(row["spent"]))
            if len(waiting) == 4:  # in tasks, and never many parts in memory at once
                waiting = [merge.remote(*waiting)]
        data = ray.get(merge.remote(*waiting))
    with replacing(out) as temporary:
        temporary.write_bytes(data)
    return Took(len(given), lost, time.monotonic() - begun, dict(spent))


def fit_guard(
    model: str,
    *,
    images: Given,
    calibrate: Given | None = None,
    network: dict[str, Any] | None = None,
    method: str | Method = "auto",
    alpha: float = 0.05,
    per_class: bool = False,
    preprocessing: Preprocessing | None = None,
    names: tuple[str, ...] = (),
    upright: bool = False,
    exportable: bool = False,
    limit: int | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    shards: int | None = None,
    pool: Pool | None = None,
    progress: bool | None = None,
    watch: Callable[[Took], object] | None = None,
) -> Guard:
    """As `Guard.fit`, with the training images on the actors; `network` says how the model is opened beside its name.

    `watch` is called with what the collecting took.
    """
    source = open_model(model, **(network or {}))
    given = image_set(images, upright=upright)
    held = None if calibrate is None else image_set(calibrate, upright=upright)
    if held is None:  # as `Guard.fit` does, before any image is read
        check_enough_to_split(min(len(given), limit or len(given)), alpha)
    else:
        refuse_copies(copies(held, given), len(held))
        check_enough(len(held), alpha)
        held = held if limit is None else limited(held, max(limit, images_needed(alpha)))
    how: dict[str, Any] = {"method": method, "exportable": exportable, "preprocessing": preprocessing}
    how |= {"batch_size": batch_size, "workers": workers, "progress": progress}
    own: dict[str, Any] = {"network": network, "upright": upright, "limit": limit, "shards": shards, "pool": pool}
    with tempfile.TemporaryDirectory() as folder:
        part = Path(folder) / "part.safetensors"
        took = collect(source, given, part, hold_out=held is None, **how, **own)
        if watch is not None:
            watch(took)
        return Guard.fit(source, parts=[part], calibrate=held, alpha=alpha, per_class=per_class, names=names, **how)


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
    begun, _ = time.monotonic(), started()
    write = writer(out)
    listing = one_by_one(images)
    if isinstance(listing, Listing):
        listing = listing.files(upright=False)  # one that has gone later is an error of its own, and moves no other
    source = guard.opened(model, **(network or {}))
    total = listing.count() or 0
    folder = out.with_name(f"{out.name}.shards")
    folder.mkdir(exist_ok=True)
    count = shards or shards_for(total, batch_size)
    job = Job(_named(source), count, _opening(source, network), batch_size, workers)
    who = identity(guard, batch_size, source.classifier.precision)
    paths = [folder / name_of(number, count) for number in range(1, count + 1)]
    left = [number for number, path in enumerate(paths, 1) if not path.exists()]
    note = plan_shard(listing, Shard(1, count), batch_size, who, paths[0]).note
    before = _begun(folder)
    if before not in (None, (count, note)):
        raise InputError(f"{folder} was begun with another guard, batch size or other images; remove it to start anew")
    with replacing(folder / "run.json") as temporary:
        temporary.write_text(json.dumps([count, note]))
    told = {"job": job, "guard": guard, "listing": listing, "folder": folder.resolve()}
    spent, scored = Counter[str](), 0
    with one_line_each():
        for row in mapped(ShardScorer, told, left, pool, listing.name, progress):
            spent.update(json.loads(row["spent"]))
            tally = json.loads(row["tally"])
            scored += tally["images"] - tally["resumed"]
    rows, named = merge_shards(paths)
    counter = Rows(rows, None)
    with replacing(out) as temporary:
        write(temporary, counter, named, "")
    shutil.rmtree(folder)  # with what a killed worker may have left there
    found = counter.tally
    kept = Tally(found.images, found.accepted, found.rejected, found.unreadable, total - scored, found.first_error)
    return kept, Took(scored, found.unreadable, time.monotonic() - begun, dict(spent))


def shards_for(images: int, batch_size: int) -> int:
    """How many shards a run is cut into: no more than batches."""
    batches = -(-images // batch_size)
    return max(1, min(batches, max(FEWEST, -(-images // LARGEST))))


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
