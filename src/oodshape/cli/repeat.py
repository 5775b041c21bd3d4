"""oodshape repeat: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path

import typer

from oodshape.cli.shared_options import ON_ANY_DEVICE, DataOption, ResultsArgument, resolve_device
from oodshape.cli.terminal import say
from oodshape.core.options import ModelOptions, RunOptions


def repeat(
    *,
    results: ResultsArgument,
    out: Path | None = None,
    data: DataOption = None,
    opening: ModelOptions = ON_ANY_DEVICE,
    running: RunOptions,
) -> None:
    """Repeat a benchmark run from its results file, and report whether the figures agree.

    Features are extracted again; the cache is not read. Metrics may differ by 0.5 points and two OOD
    images (AUROC by 0.1 points), because processors differ in last bits; costs are not compared. Exit status 1 if
    more differs.

    Args:
        out: Keep the new results in this folder.
    """
    from oodshape.benchmark.repeat import compare_runs, restore_benchmark
    from oodshape.benchmark.results import RunResults
    from oodshape.benchmark.run import run_benchmark
    from oodshape.metrics.registry import METRICS

    before = RunResults.load(results)
    given = {"data": data, **vars(running), **vars(resolve_device(opening))}
    given = {name: value for name, value in given.items() if value is not None}  # the results say the rest
    benchmark, options = restore_benchmark(before, **given)
    now = run_benchmark(benchmark, options)
    if out is not None:
        now.save(out)
    found = compare_runs(before, now)
    for note in found.notes:
        say(f"note: {note}")
    for row, differences in found.apart:
        changes = (f"{METRICS[name].head} {100 * change:+.2f}" for name, change in differences.items())
        say(f"{row.model} / {row.method} / {row.ood}: {', '.join(changes)} points")
    verdict = "the figures agree" if found.same else f"the figures do not agree in {len(found.apart)} rows"
    largest = ", ".join(f"{METRICS[name].head} {100 * change:.3f}" for name, change in found.largest.items())
    say(f"{verdict}: {found.rows} rows, largest differences {largest} points")
    if not found.same:
        raise typer.Exit(1)
