"""What a second Ray actor brings, next to what a second plain process brings in the same run.

Both score the same shards with the same network, each worker on one thread, and only shards that began after every
worker had done one are counted, so that starting up is not. A round runs all four, and the gains are compared within
it. The goal: Ray gains at least 0.9 of what plain processes gain.

    python benches/scale.py [--images 4000] [--rounds 3]
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from harness import Ratio, check
from oodshape import Guard
from oodshape.core.options import RunOptions
from oodshape.engines.ray import ActorPool, map_shards, start_ray
from oodshape.engines.workers import Job, ShardScorer
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.sources.image_set import Subset
from oodshape.images.sources.memory import SequenceImages
from oodshape.networks.loading import open_model

MODEL = "zoo:digits-vit"
SHARDS, BATCH = 40, 25
GOAL, TWICE = 0.9, 1.7


def main() -> None:
    """Measure, print the gains of each round and their ratio; status 1 where the goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--images", type=int, default=4000)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # as Ray does for an actor of one core
    sets = load_digits_sets()
    guard = Guard.fit(MODEL, images=sets["train"], calibrate=sets["test"], method="gen", progress=False)
    base = sets["test"]
    pictures = SequenceImages(Subset(base, [row % len(base) for row in range(given.images)]), "digits")
    told = {
        "job": Job.of(open_model(MODEL), SHARDS, RunOptions(batch_size=BATCH, workers=0, progress=False)),
        "guard": guard,
        "listing": pictures,
    }
    start_ray()
    shares, second = [], []
    for number in range(given.rounds):
        speed: dict[tuple[str, int], float] = {}
        for workers in (1, 2) if number % 2 else (2, 1):
            for kind, run in (("plain", plain), ("ray", by_ray)):
                with tempfile.TemporaryDirectory() as folder:
                    rows = run({**told, "folder": Path(folder)}, workers)
                speed[kind, workers] = throughput(rows, workers, given.images / SHARDS)
        gains = {kind: speed[kind, 2] / speed[kind, 1] for kind in ("plain", "ray")}
        shares.append(gains["ray"] / gains["plain"])
        said = ", ".join(f"{kind} x{workers} {found:,.0f}" for (kind, workers), found in speed.items())
        print(f"images per second: {said}; gains: plain {gains['plain']:.2f}, ray {gains['ray']:.2f}", flush=True)
        second.append(gains["ray"])
    ratio, alone = (Ratio(*(float(np.quantile(x, share)) for share in (0.5, 0.25, 0.75))) for x in (shares, second))
    print(f"{os.cpu_count()} cores")
    kept = check("two actors / one", alone, TWICE, at_least=True)
    sys.exit(not (check("a second actor next to a second process", ratio, GOAL, at_least=True) and kept))


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


class TimedScorer(ShardScorer):
    """A worker whose rows say when and where a shard was done."""

    def __call__(self, number: int) -> dict[str, Any]:
        begun = time.time()
        row = super().__call__(number)
        return row | {"begun": begun, "ended": time.time(), "pid": os.getpid()}


def by_ray(told: dict[str, Any], workers: int) -> list[dict[str, Any]]:
    """The shards on so many actors."""
    return list(map_shards(TimedScorer, told, range(1, SHARDS + 1), ActorPool(actors=workers), "digits", False))


def plain(told: dict[str, Any], workers: int) -> list[dict[str, Any]]:
    """The shards in so many processes."""
    context = multiprocessing.get_context("spawn")
    queue, out = context.Queue(), context.Queue()
    for number in [*range(1, SHARDS + 1), *[0] * workers]:
        queue.put(number)
    ready = context.Barrier(workers)
    processes = [context.Process(target=_work, args=(told, queue, out, ready)) for _ in range(workers)]
    for process in processes:
        process.start()
    rows = [out.get() for _ in range(SHARDS)]
    for process in processes:
        process.join()
    return rows


def _work(told: dict[str, Any], queue: Any, out: Any, ready: Any) -> None:
    scorer = TimedScorer(**told)
    ready.wait()
    while number := queue.get():
        out.put(scorer(number))


if __name__ == "__main__":
    main()
