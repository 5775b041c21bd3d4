"""oodshape bench: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.benchmark.spec import Benchmark, Settings
from oodshape.cli.shared_options import Compared, check_inputs, words
from oodshape.cli.terminal import console, is_quiet, say, show_line


def bench(
    *,
    benchmark: Annotated[str, typer.Argument(metavar="NAME|FILE")] = "digits",
    compared: Compared,
    methods: str = "",
    seed: Annotated[int, typer.Option(min=0)] = 0,
    seeds: Annotated[int, typer.Option(min=1)] = 1,
    out: Path | None = None,
    settings: Settings | None = None,
    full_spectrum: bool = False,
    other_lists: bool = False,
    download: bool = False,
    yes: bool = False,
) -> None:
    """Compare OOD detection methods on networks and data sets.

    Without arguments it runs `digits`: handwritten digits and three small networks that come with the package,
    nothing to download; --download gets what other benchmarks need. It prints a table and writes
    results.csv, results.json, table.md, table.tex and report.html. `oodshape report` makes other tables. A method that
    fails does not end the run: its row says so, the other results are written, and the exit status is 1.

    Args:
        benchmark: A benchmark that comes with oodshape, or a TOML file.
        methods: Only these methods, separated by commas; package.module:Name for your own.
        seed: The seed of every random choice.
        seeds: Repeat random methods with N seeds; report means and spread. With --limit, each seed draws other images
            and extracts their features.
        out: The folder for results and page [default: oodshape-results/NAME].
        settings: Hyperparameters: general, the paper's for an ID set (imagenet, cifar10, cifar100), authors-code, or
            openood, also with OpenOOD's fitting sets [default: the benchmark's].
        full_spectrum: Count shifted ID images as ID: those of ImageNet-V2, -C and -R, or CIFAR-10-C.
        other_lists: Accept lists of images that differ from the published ones.
        download: First download the data and weights that are missing.
        yes: Download without asking.
    """
    chosen = Benchmark.load(benchmark)
    for each in words(methods):
        check_inputs(method=each)
    from oodshape.benchmark.bench_model import BenchOptions  # torch: after the names were checked
    from oodshape.report.benchmark_files import print_report, write_benchmark

    chosen = chosen.full_spectrum() if full_spectrum else chosen
    chosen = chosen.with_settings(settings) if settings else chosen
    options = BenchOptions(**compared.as_kwargs(), seed=seed, seeds=seeds, methods=words(methods), any_list=other_lists)
    folder = out or Path("oodshape-results") / chosen.name
    if options.limit is not None and options.seeds > 1:
        say(f"--limit draws other images with each seed: features are extracted {options.seeds} times", err=True)
    if download:
        from oodshape.cli.data import files_of, get

        get(files_of(chosen, compared.data, compared.weights, words(compared.models)), yes=yes, unverified=False)
    results = write_benchmark(chosen, options, folder)
    if not is_quiet():
        print_report(results, console())
    say(f"page: {folder / 'report.html'}")
    for failure in results.failed:
        show_line(f"failed: {failure.method} on {failure.model}: {failure.why}")
    if results.failed:
        raise typer.Exit(1)
