"""What a second Ray actor brings, beside what a second plain process brings in the same run.

Both score the same shards with the same network, and only shards that began after every worker had done one are
counted, so that starting up is not. The goal: Ray gains at least 0.9 of what plain processes gain.

    OMP_NUM_THREADS=1 python benches/scale.py [--images 4000] [--quick]
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from oodshape import Guard
from oodshape.engines.actors import Pool, mapped, started
from oodshape.engines.work import Job, ShardScorer
from oodshape.images.digits import digits_sets
from oodshape.images.image_set import Subset
from oodshape.images.in_memory import PictureListing, Pictures

MODEL = "zoo:digits-vit"
GOAL = 0.9


def main() -> None:
    """Measure four times, print one line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    images = 640 if given.quick else given.images
    sets = digits_sets()
    guard = Guard.fit(MODEL, images=sets["train"], calibrate=sets["test"], method="gen", progress=False)
    base = sets["test"]
    pictures = Pictures(Subset(base, [row % len(base) for row in range(images)]), "digits")
    listing, shards = PictureListing(pictures), 20
    speed: dict[str, float] = {}
    started()
    for workers in (1, 2, 1, 2):
        for kind, run in (("plain", plain), ("ray", by_ray)):
            with tempfile.TemporaryDirectory() as folder:
                job = Job(MODEL, shards, {}, 32, 0)
                told = {"job": job, "guard": guard, "listing": listing, "folder": Path(folder)}
                found = throughput(run(told, shards, workers), workers, images / shards)
                name = f"{kind} {workers}"
                speed[name] = max(speed.get(name, 0.0), found)
    gains = {kind: speed[f"{kind} 2"] / speed[f"{kind} 1"] for kind in ("plain", "ray")}
    share = gains["ray"] / gains["plain"]
    print(
        json.dumps({"images_per_second": speed, "gain": gains, "share": share, "goal": GOAL, "cores": os.cpu_count()})
    )
    sys.exit(share < GOAL)


def throughput(rows: list[dict[str, Any]], workers: int, size: float) -> float:
    """Images per second over the shards that began after each worker had done one."""
    first: dict[int, float] = {}
    for row in sorted(rows, key=lambda row: row["ended"]):
        first.setdefault(row["pid"], row["ended"])
    warm = max(first.values())
    counted = [row for row in rows if row["begun"] >= warm]
    if len(first) < workers or not counted:
        raise SystemExit(f"{len(first)} of {workers} workers did anything: take more images")
    return len(counted) * size / (max(row["ended"] for row in counted) - warm)


def by_ray(told: dict[str, Any], shards: int, workers: int) -> list[dict[str, Any]]:
    """The shards on so many actors."""
    return list(mapped(ShardScorer, told, range(1, shards + 1), Pool(actors=workers), "digits", False))


def plain(told: dict[str, Any], shards: int, workers: int) -> list[dict[str, Any]]:
    """The shards in so many processes."""
    context = multiprocessing.get_context("spawn")
    queue, out = context.Queue(), context.Queue()
    for number in [*range(1, shards + 1), *[0] * workers]:
        queue.put(number)
    processes = [context.Process(target=_work, args=(told, queue, out)) for _ in range(workers)]
    for process in processes:
        process.start()
    rows = [out.get() for _ in range(shards)]
    for process in processes:
        process.join()
    return rows


def _work(told: dict[str, Any], queue: Any, out: Any) -> None:
    scorer = ShardScorer(**told)
    while number := queue.get():
        row = scorer({"shard": [number]})
        out.put({name: values[0] for name, values in row.items()})


if __name__ == "__main__":
    main()
