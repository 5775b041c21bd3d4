"""oodshape bench: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from enum import Enum
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.comparing import CHANCE, Compared, Drawing
from oodshape.cli.completion import benchmark_names, method_names
from oodshape.cli.openood import OpenOod
from oodshape.cli.options import Costs, Keeping, Running, TrustOption, words
from oodshape.cli.terminal import console, say


class Table(Enum):
    """The tables that `bench` prints."""

    model = "model"
    ood = "ood"
    standard4 = "standard4"
    groups = "groups"


class Sort(Enum):
    """The order of the methods in the printed table."""

    auroc = "auroc"
    fpr95 = "fpr95"
    table = "table"


class Positive(Enum):
    """The positive side of FPR95."""

    id = "id"
    ood = "ood"


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
        str, typer.Option(autocompletion=method_names, help="Only these methods, separated by commas.")
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
    table: Annotated[
        Table,
        typer.Option(
            metavar="KIND",
            help="By model (model), by OOD set (ood), by model on the standard four sets (standard4), or by family of "
            "models (groups).",
        ),
    ] = Table.model,
    sort: Annotated[
        Sort,
        typer.Option(
            metavar="ORDER",
            help="The order of what is printed: by mean AUROC (auroc) or FPR95 (fpr95), the best on top below `auto`, "
            "or as in the paper (table), which is the order of the files.",
        ),
    ] = Sort.auroc,
    compare_paper: Annotated[
        bool, typer.Option("--compare-paper", help="Show the paper's figures and the difference beside ours.")
    ] = False,
    positive: Annotated[
        Positive, typer.Option(help="Which side FPR95 takes as positive: id (the paper) or ood (OpenOOD).")
    ] = Positive.id,
    openood: OpenOod,
    keeping: Keeping,
    samples: Annotated[
        int, typer.Option(min=0, help="Show the N hardest images of each set on the page; 0 keeps images out of it.")
    ] = 6,
    trust_code: TrustOption = False,
    running: Running,
    costs: Costs,
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only where the results are.")] = False,
) -> None:
    """Compare OOD detection methods on networks and data sets.

    Without arguments it runs `digits`: handwritten digits and three small networks that come with the package,
    nothing to download. It prints a table and writes results.csv, results.json, table.md, table.tex and
    report.html, a page to look at.
    """
    from oodshape.benchmark.prepared import Options
    from oodshape.benchmark.spec import Benchmark
    from oodshape.report import show, tables_of
    from oodshape.report.benchmark_files import bench_files
    from oodshape.report.openood_files import show_openood
    from oodshape.report.verdict import verdict

    costs.hold()
    chosen = openood.of(Benchmark.load(benchmark))
    options = Options(
        **compared.said(),
        **drawing.said(),
        keep_scores=keep_scores,
        methods=words(methods),
        cache=keeping.folder,
        positive=positive.value,
        samples=samples,
        tuned=openood.tuned,
        any_list=openood.other_lists,
        trust_code=trust_code,
        progress=False if json or quiet else None,
        **running.place("float32"),
        **running.feeding(),
    )
    folder = out or Path("oodshape-results") / chosen.name
    results = bench_files(chosen, options, folder, table.value, paper=compare_paper)
    if json:
        typer.echo(encoder.dumps([vars(row) for row in results.rows]))
        return
    if not quiet:
        show_openood(results, console())
        for part in tables_of(results, table.value, paper=compare_paper, sort=sort.value):
            show(part, console())
        console().print("", *verdict(results), "", sep="\n", markup=False)
    say(f"page: {folder / 'report.html'}")
