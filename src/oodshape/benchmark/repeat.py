"""Run a benchmark again from what its results say, and tell whether the figures agree."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from oodshape.benchmark.bench_model import BenchOptions
from oodshape.benchmark.results import Row, RunResults, make_tuples
from oodshape.benchmark.spec import Benchmark
from oodshape.core.errors import InputError, check_trust
from oodshape.core.values import check_fields
from oodshape.methods.records import find_registered
from oodshape.metrics.registry import METRICS

# the options that decide the figures
CHOSEN = ("models", "methods", "limit", "seed", "seeds", "resamples", "precision", "any_list")
LARGEST = {"seeds": 1000, "resamples": 100_000}  # that a file may ask for


def run_recipe(benchmark: Benchmark, options: BenchOptions, in_memory: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return what repeats a run: the text of the benchmark and the options that affect its results.

    `in_memory` are networks, images and methods that were Python objects, which no file can bring back.
    """
    chosen = {name: getattr(options, name) for name in CHOSEN}
    text = "" if benchmark.spectrum else benchmark.text  # further ID images are no part of the text
    where = {"text": text, "base": "" if benchmark.shipped else str(benchmark.base), "settings": benchmark.settings}
    return where | chosen | ({"in_memory": in_memory} if in_memory else {})


def restore_benchmark(results: RunResults, **where: Any) -> tuple[Benchmark, BenchOptions]:
    """Return the benchmark and the options of saved results; `where` has folders, device and options to change."""
    said = results.provenance.get("run")
    if isinstance(said, Mapping) and said.get("in_memory"):
        named = "; ".join(map(str, said["in_memory"]))
        raise InputError(f"these results come from objects in memory, which cannot be rebuilt: {named}; call evaluate")
    if not isinstance(said, Mapping) or not said.get("text"):
        raise InputError(
            "these results do not say how they were made: they are of a full spectrum, or their "
            "benchmark was put together in Python; run it again yourself"
        )
    try:
        chosen = make_tuples({name: said[name] for name in CHOSEN})
        benchmark = Benchmark.parse(said["text"], where="the benchmark of the results", base=Path(said["base"]))
        benchmark, options = benchmark.with_settings(said["settings"]), BenchOptions(**{**chosen, **where})
        check_fields(options)
        for name, most in LARGEST.items():
            if not 0 <= getattr(options, name) <= most:
                raise InputError(f"these results ask for {getattr(options, name)} {name}; repeat allows up to {most:,}")
    except (KeyError, TypeError) as error:
        raise InputError(f"these results do not say how they were made: {error}") from None
    for name in options.methods:
        if find_registered(name) is None:
            check_trust(f"the results name a method that is code to import: {name!r}", options.trust_code)
    return benchmark, options


@dataclass(frozen=True)
class RunComparison:
    """How two runs of the same benchmark compare."""

    rows: int  # in both
    largest: dict[str, float]  # metric -> the largest difference of a row, without its sign
    apart: tuple[tuple[Row, dict[str, float]], ...]  # rows that differ by more than between processors: new minus old
    notes: tuple[str, ...]  # what else is not the same: weights, images, rows of one run alone

    @property
    def same(self) -> bool:
        """Whether every row is there and agrees."""
        return not self.apart and not any(note.startswith(MISSING) for note in self.notes)


MISSING = "only "


def compare_runs(before: RunResults, now: RunResults) -> RunComparison:
    """Whether two runs agree, row by row."""
    old, new = ({(row.model, row.method, row.ood): row for row in each.rows} for each in (before, now))
    both = [(old[key], new[key]) for key in old if key in new]
    if not both:
        raise InputError("the two runs have no row in common")
    largest: dict[str, float] = {}
    apart = []
    for a, b in both:
        moved = {name: b.value(name) - a.value(name) for name, metric in METRICS.items() if metric.interval}
        moved = {name: change for name, change in moved.items() if not math.isnan(change)}
        largest |= {name: max(abs(change), largest.get(name, 0.0)) for name, change in moved.items()}
        far = {name: change for name, change in moved.items() if abs(change) > METRICS[name].allow(b.n_ood)}
        apart += [(b, far)] if far else []
    return RunComparison(len(both), largest, tuple(apart), tuple(_notes(before, now, old, new)))


def _notes(before: RunResults, now: RunResults, old: Mapping[Any, Row], new: Mapping[Any, Row]) -> Iterator[str]:
    for name, alone in (("the first run", old.keys() - new.keys()), ("the second run", new.keys() - old.keys())):
        if alone:
            yield f"{MISSING}{name} has {len(alone)} rows, among them {' / '.join(sorted(alone)[0])}"
    for what, key in (("weights", "weights"), ("images", "data")):
        one, two = (_said(each, key) for each in (before, now))
        for name in one:
            if name in two and one[name] != two[name]:
                yield f"the {what} of {name} are not those of the first run"
    for name in ("oodshape", "torch", "numpy"):
        versions = before.provenance.get(name), now.provenance.get(name)
        if versions[0] != versions[1]:
            yield f"{name} was {versions[0]} and is {versions[1]}"


def _said(results: RunResults, key: str) -> Mapping[str, Any]:
    found = results.provenance.get(key, results.provenance.get("settings", {}).get(key, {}))
    return found if isinstance(found, Mapping) else {}
