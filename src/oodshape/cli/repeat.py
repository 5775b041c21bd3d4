"""oodshape repeat: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import ON_ANY_DEVICE, DataOption, resolve_device
from oodshape.cli.terminal import say
from oodshape.core.options import ModelOptions, RunOptions


def repeat(
    *,
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="A results.json, or the folder of a benchmark run.")
    ],
    out: Annotated[Path | None, typer.Option(help="Keep the new results in this folder.")] = None,
    data: DataOption = None,
    opening: ModelOptions = ON_ANY_DEVICE,
    cache: Annotated[Path | None, typer.Option(help="Use the features that are kept here \\[default: none].")] = None,
    running: RunOptions,
) -> None:
    """Run a benchmark again from what its results say, and tell whether the figures agree.

    Features that lie in the cache are not used unless --cache says where. AUROC may differ by 0.1 points and FPR95 by
    0.5 points and two images: processors do not agree on last bits. Exit status 1 where more differs.
    """
    from oodshape.benchmark.repeat import again, agreement
    from oodshape.benchmark.results import Results
    from oodshape.benchmark.run import run

    before = Results.load(results)
    given = {"data": data, "cache": cache, **vars(running), **vars(resolve_device(opening))}
    given = {name: value for name, value in given.items() if value is not None}  # the results say the precision
    benchmark, options = again(before, **given, samples=0)
    now = run(benchmark, options)
    if out is not None:
        now.save(out)
    found = agreement(before, now)
    for note in found.notes:
        say(f"note: {note}")
    for each in found.apart:
        where_found = f"{each.row.model} / {each.row.method} / {each.row.ood}"
        say(f"{where_found}: AUROC {100 * each.auroc:+.2f}, FPR95 {100 * each.fpr95:+.2f} points")
    verdict = "the figures agree" if found.same else f"the figures do not agree in {len(found.apart)} rows"
    largest = f"AUROC {100 * found.auroc:.3f}, FPR95 {100 * found.fpr95:.3f} points"
    say(f"{verdict}: {found.rows} rows, largest difference {largest}")
    if not found.same:
        raise typer.Exit(1)
