"""oodshape bench: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.completion import benchmark_names, method_names
from oodshape.cli.data import PANEL, YesOption
from oodshape.cli.method_options import CHANCE, Compared, Drawing
from oodshape.cli.openood import OpenOod
from oodshape.cli.shared_options import words
from oodshape.cli.terminal import console, is_quiet, say, show_line


def bench(
    *,
    benchmark: Annotated[
        str,
        typer.Argument(
            metavar="[NAME|FILE]",
            autocompletion=benchmark_names,
            help="A benchmark that comes with oodshape, or a TOML file.",
        ),
    ] = "digits",
    compared: Compared,
    methods: Annotated[
        str,
        typer.Option(
            autocompletion=method_names,
            help="Only these methods, separated by commas; package.module:Name for your own.",
        ),
    ] = "",
    drawing: Drawing,
    keep_scores: Annotated[
        bool | None,
        typer.Option(
            "--keep-scores/--no-keep-scores",
            help="Write the score of every image to scores.parquet, for oodshape compare \\[default: small runs do].",
            rich_help_panel=CHANCE,
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where results and page go \\[default: oodshape-results/NAME].")
    ] = None,
    openood: OpenOod,
    download: Annotated[
        bool,
        typer.Option("--download", help="First download the data and weights that are missing.", rich_help_panel=PANEL),
    ] = False,
    yes: YesOption = False,
    samples: Annotated[
        int, typer.Option(min=0, help="Show the N hardest images of each set on the page; 0 keeps images out of it.")
    ] = 6,
) -> None:
    """Compare OOD detection methods on networks and data sets.

    Without arguments it runs `digits`: handwritten digits and three small networks that come with the package,
    nothing to download; --download gets what other benchmarks need. It prints a table and writes
    results.csv, results.json, table.md, table.tex and report.html. `oodshape report` makes other tables. A method that
    fails does not end the run: its row and a line say so, the rest is written, and the exit status is 1.
    """
    from oodshape.benchmark.plan import BenchOptions
    from oodshape.benchmark.spec import Benchmark
    from oodshape.report.benchmark_files import print_report, write_benchmark

    chosen = openood.of(Benchmark.load(benchmark))
    options = BenchOptions(
        **compared.as_kwargs(),
        **vars(drawing),
        keep_scores=keep_scores,
        methods=words(methods),
        samples=samples,
        tuned=openood.tuned,
        any_list=openood.other_lists,
    )
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
    for each in results.failed:
        show_line(f"failed: {each.method} on {each.model}: {each.why}")
    if results.failed:
        raise typer.Exit(1)
