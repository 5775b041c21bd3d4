"""Time and memory next to pytorch-ood for every method that both have: fit and score, by the number of images.

    python benches/rivals.py [--quick] [--sizes 10000,200000] [--methods vim,knn] [--out docs/speed.json]

Both read the same float32 features of 2,048 numbers, 1,000 classes, from a file that lies in memory, so that what is
counted is what a library adds. Ours and theirs take turns, each in a process of its own, which measures the time of
fit and score and the largest anonymous memory that they add; a ratio is taken within a turn. Fitting starts from
features and classes, as extraction leaves them; scoring from features alone. Theirs is fitted on all features at once
and scores them in batches, as its loop over a loader does; scoring that takes longer than a limit is stopped, and its
time scaled to all images: it is linear in them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import platform
import resource
import sys
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np
import torch
from llvmlite.binding import get_host_cpu_name as host_processor
from scipy.stats import spearmanr
from torch import nn

from harness import CLASSES, THREADS, WIDTH, filled, measured, now
from oodshape import Features, Head
from oodshape.core.files import replacing
from pairs import BATCH, NOTES, OURS, rivals, theirs

SIZES = {1_000: 5, 5_000: 3, 10_000: 3, 50_000: 1}  # images -> turns
QUICK = {5_000: 1}  # more than features: with fewer a covariance has no inverse
LONGEST = 4.0  # seconds of scoring, then theirs is stopped and scaled
PATIENCE = 120.0  # seconds of a process, then it is ended
COMPARED = 256  # images whose order by both scores is compared
MEMORY = 0.8  # of the machine's, that a process may take
Job = Callable[[], dict[str, Any]]


def main() -> int:
    """Measure, print a line per method and size, write the figures; 1 where the scores of both disagree."""
    given = options()
    sizes = QUICK if given.quick else SIZES
    sizes = {size: sizes.get(size, 1) for size in given.sizes or sizes}
    names = [name for name in OURS if not given.methods or name in given.methods]
    ood = theirs()
    started, cells = now(), []
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "features.npy"
        z = np.lib.format.open_memmap(path, mode="w+", dtype=np.float32, shape=(max(sizes), WIDTH))
        classes = np.arange(len(z)) % CLASSES  # in turn: any first thousand has them all
        weight, _ = filled(z, signed=False, classes=classes)
        z.flush()
        del z
        print(
            f"{'method':<9} {'images':>8}  {'theirs / ours: fit':>20} {'score':>12} {'MB ours, theirs':>22}  same order"
        )
        for size, turns in sizes.items():
            for name in names:
                jobs = {
                    "ours": partial(ours, name, path, size, weight, classes[:size]),
                    "theirs": partial(other, ood, name, path, size, weight, classes[:size]),
                }
                cells.append(cell(name, size, jobs, turns))
                print(line(cells[-1]), flush=True)
                minutes = (now() - started) / 60
                if given.out is not None:  # each time: a run that is stopped has measured something
                    with replacing(given.out) as temporary:
                        temporary.write_text(json.dumps(about(minutes, sizes) | {"cells": cells}, indent=1) + "\n")
    print(f"{minutes:.1f} minutes")
    return int(any(cell["same_order"] is not None and cell["same_order"] < 0.95 for cell in cells))


def options() -> argparse.Namespace:
    """What was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5,000 images")
    parser.add_argument("--sizes", type=lambda text: [int(part) for part in text.split(",")], help="numbers of images")
    parser.add_argument("--methods", type=lambda text: text.split(","), help="some methods only")
    parser.add_argument("--out", type=Path, help="a JSON file for the figures")
    return parser.parse_args()


def about(minutes: float, sizes: dict[int, int]) -> dict[str, Any]:
    """Where and how the figures came about."""
    packages = ("oodshape", "pytorch-ood", "torch", "numpy", "scikit-learn")
    return {
        "processor": host_processor(),
        "threads": THREADS,
        "python": platform.python_version(),
        "versions": {name: version(name) for name in packages},
        "width": WIDTH,
        "classes": CLASSES,
        "turns": {str(size): turns for size, turns in sizes.items()},
        "longest": LONGEST,
        "patience": PATIENCE,
        "minutes": round(minutes, 1),
        "load": round(os.getloadavg()[2], 1),  # of the last 15 minutes: about 2 where nothing else ran
    }


def cell(name: str, size: int, jobs: dict[str, Job], turns: int) -> dict[str, Any]:
    """One method at one size: the medians of both sides, and the ratios within each turn."""
    found: dict[str, list[dict[str, Any]]] = {side: [] for side in jobs}
    for turn in range(turns):
        for side in list(jobs)[:: -1 if turn % 2 else 1]:
            found[side].append(apart(jobs[side]))
            if "failed" in found[side][-1]:
                break
    sides = {side: _middle(runs) for side, runs in found.items()}
    pairs = list(zip(*found.values(), strict=False))
    ratios = {
        step: np.quantile([b[step] / a[step] for a, b in pairs if step in a and step in b], (0.5, 0.25, 0.75))
        for step in ("fit", "score")
        if any(step in a and step in b for a, b in pairs)
    }
    orders = [_order(a["some"], b["some"]) for a, b in pairs if "some" in a and "some" in b]
    return {
        "method": name,
        "images": size,
        **sides,
        "ratio": {step: round(float(values[0]), 3) for step, values in ratios.items()},
        "quartiles": {step: [round(float(value), 3) for value in values[1:]] for step, values in ratios.items()},
        "same_order": None if not orders or name in NOTES else round(float(orders[0]), 3),
        "note": NOTES.get(name, ""),
    }


def _order(a: list[float], b: list[float]) -> float:
    """The rank correlation of the scores that both gave."""
    both = min(len(a), len(b))
    return float(spearmanr(a[:both], b[:both]).statistic)


def _middle(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The medians of seconds, the largest memory, and what was special."""
    kept: dict[str, Any] = {key: runs[-1][key] for key in ("failed", "scored") if key in runs[-1]}
    for step in ("fit", "score"):
        values = [run[step] for run in runs if step in run]
        if values:
            kept[step] = float(f"{np.median(values):.3g}")
            kept[f"{step}_mb"] = round(max(run[f"{step}_mb"] for run in runs if step in run))
    return kept


def apart(job: Job, patience: float = PATIENCE) -> dict[str, Any]:
    """What a job finds in a process of its own; or why it found nothing."""
    fork = multiprocessing.get_context("fork")  # all is imported, and no thread has started yet
    here, there = fork.Pipe(duplex=False)
    process = fork.Process(target=_send, args=(there, job))
    process.start()
    there.close()
    try:
        if not here.poll(patience):
            return {"failed": f"not done after {patience / 60:.0f} minutes"}
        found: dict[str, Any] = here.recv()
        return found
    except EOFError:
        return {"failed": "ended by the system"}
    finally:
        process.kill()
        process.join()


def _send(there: Connection, job: Job) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    resource.setrlimit(resource.RLIMIT_AS, (int(MEMORY * memory),) * 2)
    torch.set_num_threads(THREADS)
    warnings.simplefilter("ignore")
    try:
        with torch.no_grad():
            there.send(job())
    except (MemoryError, RuntimeError) as error:
        if not isinstance(error, MemoryError) and "allocate" not in str(error):
            raise
        there.send({"failed": f"needs more than {MEMORY * memory / 2**30:.0f} GB"})


def ours(name: str, path: Path, size: int, weight: Any, classes: Any) -> dict[str, Any]:
    """Our fit and score."""
    small, _, small_head = narrow()
    OURS[name].fit(Features.from_arrays(small, small_head)).score(Features.from_arrays(small, small_head))
    z, head = np.load(path, mmap_mode="r")[:size], Head.of((weight, None))
    fitted: list[Any] = []
    scores: list[Any] = []

    def fit() -> None:
        fitted.append(OURS[name].fit(Features.from_arrays(z, head, predictions=classes)))

    def score() -> None:
        scores.append(fitted[0].score(Features.from_arrays(z, head)))

    return steps(fit, score, lambda: scores[0], lambda: size)


def other(ood: Any, name: str, path: Path, size: int, weight: Any, classes: Any) -> dict[str, Any]:
    """Their fit and score."""
    small, labels, (small_weight, _) = narrow()
    rival = rivals(ood, linear(small_weight))[name]()
    if rival.fit is not None:
        rival.fit(torch.from_numpy(small), torch.from_numpy(labels))
    rival.score(torch.from_numpy(small[:64]))
    z, y = torch.from_numpy(np.load(path, mmap_mode="r")[:size]), torch.from_numpy(classes)
    head, scores, batch = linear(weight), [], BATCH.get(name, 1024)
    made: list[Any] = []

    def fit() -> None:
        made.append(rivals(ood, head)[name]())
        if made[0].fit is not None:
            made[0].fit(z, y)

    def score() -> None:
        started = now()
        for part in torch.split(z, batch):
            scores.append(made[0].score(part))
            if now() - started > LONGEST:
                break

    found = steps(fit, score, lambda: torch.cat(scores), lambda: sum(map(len, scores)))
    found["score"] *= size / found["scored"]
    if rival.fit is None:
        del found["fit"], found["fit_mb"]
    return found


def steps(
    fit: Callable[[], None], score: Callable[[], None], scores: Callable[[], Any], scored: Callable[[], int]
) -> dict[str, Any]:
    """Seconds and MB of both steps, how many images were scored, and some scores."""
    fit_seconds, fit_mb = measured(fit)
    score_seconds, score_mb = measured(score)
    found = {"fit": fit_seconds[0], "fit_mb": fit_mb, "score": score_seconds[0], "score_mb": score_mb}
    return {**found, "scored": scored(), "some": scores()[:COMPARED].double().tolist()}


def linear(weight: Any) -> nn.Linear:
    """The head as their detectors take it."""
    head = nn.Linear(weight.shape[1], weight.shape[0])
    head.weight.data, head.bias.data = torch.from_numpy(weight), torch.zeros(len(weight))
    return head.requires_grad_(False)


def narrow() -> tuple[Any, Any, tuple[Any, Any]]:
    """Features on which a first call costs nothing: loops are loaded, threads started."""
    rng = np.random.default_rng(0)
    weight, labels = np.eye(16, 64, dtype=np.float32), np.arange(320) % 16
    z = np.maximum(5 * weight[labels] + rng.normal(size=(320, 64)) * 0.3, 0).astype(np.float32)
    return z, labels, (weight, np.zeros(16, np.float32))


def line(cell: dict[str, Any]) -> str:
    """One line of the table in the terminal."""
    ratios = [f"{cell['ratio'][step]:.2f}x" if step in cell["ratio"] else "-" for step in ("fit", "score")]
    memory = ", ".join(
        "/".join(str(cell[side].get(f"{step}_mb", "-")) for step in ("fit", "score")) for side in ("ours", "theirs")
    )
    why = cell["theirs"].get("failed", "")
    order = "-" if cell["same_order"] is None else f"{cell['same_order']:.3f}"
    return f"{cell['method']:<9} {cell['images']:>8,}  {ratios[0]:>20} {ratios[1]:>12} {memory:>22}  {order}  {why}"


if __name__ == "__main__":
    sys.exit(main())
