"""The files that oodshape itself writes: guards, watch states, results, scores, caches."""

from __future__ import annotations

import json
import tempfile
import warnings
from collections.abc import Callable
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
from safetensors.numpy import load, save

from damage import array_damaged, bytes_damaged, tree_damaged
from kind import Files, Kind, equal
from oodshape import METHODS, Features, Guard, Results, Watch
from oodshape.benchmark.results import Row, ScoreCurve
from oodshape.core.files import CHECKSUM, checksum, compute_fingerprint
from oodshape.features.disk_cache import CacheEntry
from oodshape.guard.describe import facts
from oodshape.guard.fitted import About
from oodshape.guard.scoring import resumable_scores
from oodshape.guard.scoring.score_formats import read_scores, write_scores
from oodshape.guard.verdict import Scored
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.metrics.detection import Estimate

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(4, 12)).astype(np.float32)
BIAS = RNG.normal(size=4).astype(np.float32)
FITTED = (
    "optfs-e",
    "optfs-v",
    "dice",
    "react",
    "bfact",
    "vra-p",
    "ash-rand",
    "knn",
    "nnguide",
    "vim",
    "mds++",
    "rmds++",
)
MORE = ("she", "klm", "cadref", "fdbd", "nci", "gen", "bats", "ras", "scale", "lts", "optfs-react", "msp", "odin")


def features(n: int, seed: int) -> Features:
    """Positive features of a small head."""
    values = np.abs(np.random.default_rng(seed).normal(size=(n, 12))).astype(np.float32)
    return Features.from_arrays(values, head=(WEIGHT, BIAS))


def written(name: str, write: Callable[[Path], object]) -> Files:
    """What a function writes to a path."""
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / name)
        return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


def forged(files: Files, rng: Random) -> Files:
    """A safetensors file with one value or tensor changed, and the right checksum."""
    [(name, data)] = files.items()
    size = int.from_bytes(data[:8], "little")
    said = json.loads(json.loads(data[8 : 8 + size])["__metadata__"]["oodshape"])
    tensors = load(data)
    if tensors and rng.random() < 0.4:
        which = rng.choice(sorted(tensors))
        tensors[which] = np.ascontiguousarray(array_damaged(tensors[which], rng))
    elif rng.random() < 0.15:
        said = tree_damaged(said, rng)
    else:
        nested = [key for key, text in said.items() if isinstance(text, str) and text[:1] == "{"]
        if nested:
            key = rng.choice(nested)
            said[key] = json.dumps(tree_damaged(json.loads(said[key]), rng))
        else:
            said = tree_damaged(said, rng)
    if isinstance(said, dict):
        said = said | {CHECKSUM: checksum(said, tensors)}
    return {name: save(tensors, {"oodshape": json.dumps(said)})}


def guards() -> Kind:
    """Detectors of many methods with all that a guard knows: what they decide on some images."""
    train, held_out, test = features(120, 1), features(60, 2), features(8, 3)
    proxy = [features(40, 4)]
    about = About(Preprocessing((0.5,), (0.5,), 8, 8), "f" * 16, True, ("a", "b", "c", "d"), "msp", "zoo:x", "", "fc")
    seeds = []
    for number, name in enumerate(n for n in (*FITTED, *MORE, "auto") if n in METHODS):
        detector = METHODS[name].fit(train, proxy=proxy).calibrate(held_out, 0.1, per_class=number % 3 == 0)
        seeds.append(written("guard.safetensors", Guard(detector, about).save))

    def read(folder: Path) -> bytes:
        guard = Guard.load(folder / "guard.safetensors")
        said = json.dumps(facts(guard), default=repr)
        decision = guard.detector.decide(test)
        return said.encode() + b"".join(part.numpy().tobytes() for part in decision)

    return Kind("guard", tuple(seeds), read, equal, forged)


def watches() -> Kind:
    """States: what they say after some more images."""
    begun = Watch.begin(alpha=0.05, n_calibration=199)
    noise = np.random.default_rng(0).uniform(0.005, 1, 300)
    states = (begun, begun.after(noise), begun.after([*noise, *([None] * 20), *([0.005] * 60)]))
    seeds = tuple(written("state.safetensors", state.save) for state in states)

    def read(folder: Path) -> bytes:
        watch = Watch.load(folder / "state.safetensors").after([0.3, 0.9, None])
        return f"{watch!s}\n{watch.rejection.shares}\n{watch!r}".encode()

    return Kind("watch", seeds, read, equal, forged)


def results() -> Kind:
    """Results of a benchmark: their rows and averages."""
    metrics = {name: Estimate(0.5, 0.5, 0.5) for name in ("auroc", "fpr95")}
    rows = tuple(
        Row(
            benchmark="b", model="net", family="MLP", method=method, ood=ood, group="far", metrics=metrics,
            n_train=5, n_id=6, n_ood=7, id_accuracy=0.9,
        )
        for method in ("msp", "energy")
        for ood in ("noise", "letters")
    )  # fmt: skip
    curves = (ScoreCurve(model="net", method="msp", ood="noise", fpr=(0.0, 0.5, 1.0), tpr=(0.0, 1.0, 1.0)),)
    made = Results(rows, {"methods": {"msp": "MSP"}, "settings": {"limit": 0}}, (("a", "b"),), curves)

    def read(folder: Path) -> bytes:
        found = Results.load(folder)
        return repr((found, found.names("method"), found.averages("model").to_dict())).encode()

    def forge(files: Files, rng: Random) -> Files:
        data = tree_damaged(json.loads(files["results.json"]), rng)
        data = data | {CHECKSUM: checksum(data)} if isinstance(data, dict) else data
        return files | {"results.json": json.dumps(data).encode()}

    seed = _below(written("out", made.save))
    return Kind("results", (seed,), read, equal, forge, ("results.json",))


def _below(files: Files) -> Files:
    return {name.partition("/")[2]: data for name, data in files.items()}


def scored(n: int) -> list[Scored]:
    """Rows as `score` gives them, one of a name that is no UTF-8, one of an image that could not be read."""
    rows = [Scored(f"images/{i}.png", "a", i / 7, (i + 1) / (n + 1), i > 3) for i in range(n)]
    return [Scored("b\udcff.png", "b", 0.1, 0.5, True), Scored("c.png", error='truncated, "file"'), *rows]


def scores(ending: str) -> Kind:
    """Files of scores: what a watch says of them. Text has no checksum: any p-value in it may be meant."""
    path = f"scores.{ending}"
    seed = written(path, lambda out: write_scores(out, scored(30), named=True))

    def read(folder: Path) -> bytes:
        values = [row.p_value for row in read_scores(str(folder / path))]
        return repr((values, Watch.begin(alpha=0.05, n_calibration=99).after(values))).encode()

    return Kind(f"scores-{ending}", (seed,), read, equal if ending == "parquet" else None)


def parts() -> Kind:
    """What a killed `score` leaves: the rows that are kept are the first of those that it wrote."""
    size, who = 8, "0123456789abcdef"
    rows = scored(30)

    def sealed(blocks: list[list[Any]]) -> bytes:
        data, mark = json.dumps({"oodshape": who}).encode() + b"\n", who
        for block in blocks:
            lines = "".join(json.dumps(row) + "\n" for row in block).encode()
            mark = compute_fingerprint(mark, lines)
            data += lines + resumable_scores._sealed(mark)
        return data

    blocks = [[list(row) for row in rows[at : at + size]] for at in range(0, len(rows), size)]
    whole = sealed(blocks)

    def read(folder: Path) -> bytes:
        pairs = iter([(row.path, -1) for row in rows])
        path = folder / "s.csv.part"
        with path.open("a+b") as file:
            kept, _ = resumable_scores._resume(file, path, who, size, pairs)
            found = list(islice(resumable_scores.read_part_file(file), kept + 1))
        return json.dumps(found)[:-1].encode()

    def forge(files: Files, rng: Random) -> Files:
        return {"s.csv.part": sealed(blocks[: rng.randrange(len(blocks) + 1)]) + bytes_damaged(b"[1, 2]\n", rng)}

    return Kind("part", ({"s.csv.part": whole},), read, lambda found, whole: whole.startswith(found), forge)


def caches() -> Kind:
    """Features on disk, whole and half filled: refused, or the rows that were written."""
    values = np.random.default_rng(1).normal(size=(40, 6)).astype(np.float32)
    classes = np.random.default_rng(2).integers(0, 4, 40)

    def fill(folder: Path, rows: int) -> None:
        folder.mkdir()
        entry = CacheEntry(folder, (40, 6), 4, "float32")
        for first in range(0, rows, 10):
            entry.put(first, values[first : first + 10], classes[first : first + 10])
        if rows == 40:
            entry.finish()

    seeds = tuple(_below(written("entry", partial(fill, rows=rows))) for rows in (40, 20))

    def read(folder: Path) -> bytes:
        entry = CacheEntry(folder, (40, 6), 4, "float32")
        kept = entry.load()
        if kept is None:
            rows = entry.sound_rows(".part")
            kept = entry.begun(rows) if rows else (values[:0], classes[:0])
        assert all(np.array_equal(a, b[: len(a)]) for a, b in zip(kept, (values, classes), strict=True)), "other rows"
        return b""

    return Kind("cache", seeds, read, equal)


def every() -> dict[str, Callable[[], Kind]]:
    """How each kind is made, by its name."""
    warnings.simplefilter("ignore")
    texts = {f"scores-{ending}": partial(scores, ending) for ending in ("csv", "jsonl", "parquet")}
    plain = {"guard": guards, "watch": watches, "results": results}
    return {**plain, **texts, "part": parts, "cache": caches}
