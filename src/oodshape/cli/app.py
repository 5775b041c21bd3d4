"""The command line: parses, calls, prints. No logic of its own."""

from __future__ import annotations

import sys
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oodshape.cli.export import export
from oodshape.cli.fit import fit
from oodshape.cli.score import check, inspect, score
from oodshape.cli.watch import watch

if TYPE_CHECKING:
    from rich.console import Console

app = typer.Typer(
    name="oodshape",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    help="Tell which images an image classifier should not trust.\n\n"
    "A classifier answers with confidence even on images that it was never meant to see. oodshape reads the "
    "features of a trained network and gives every image a score: high for images like those it was trained on "
    "(in-distribution, ID), low for others (out-of-distribution, OOD).",
)


for command in (fit, score, inspect, check, export, watch):
    app.command()(command)


class Table(Enum):
    """The tables that `bench` prints."""

    model = "model"
    ood = "ood"
    standard4 = "standard4"
    groups = "groups"


class Positive(Enum):
    """The positive side of FPR95."""

    id = "id"
    ood = "ood"


def main() -> None:
    """Run the command line; a user's mistake is one line on stderr and exit status 2."""
    from oodshape.core.errors import InputError

    try:
        app()
    except InputError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(2)
    except BrokenPipeError:
        sys.exit(0)
    except KeyboardInterrupt:
        sys.stderr.write("stopped\n")
        sys.exit(130)
    except OSError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.exit(1)


def _version(asked: bool) -> None:
    if asked:
        import oodshape

        typer.echo(oodshape.__version__)
        raise typer.Exit


def _console() -> Console:
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


@app.callback()
def common(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    """Options that stand before a command."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


@app.command()
def bench(
    benchmark: Annotated[
        str, typer.Argument(metavar="[NAME|FILE]", help="A benchmark that comes with oodshape, or a TOML file.")
    ] = "digits",
    models: Annotated[str, typer.Option(help="Only these networks, separated by commas.")] = "",
    methods: Annotated[str, typer.Option(help="Only these methods, separated by commas.")] = "",
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most N images of each set, drawn with a fixed seed.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Where results and page go \\[default: oodshape-results/NAME].")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(envvar="OODSHAPE_DATA", help="The folder that holds the data sets.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(envvar="OODSHAPE_WEIGHTS", help="The folder that holds weights, NETWORK.safetensors or .pth."),
    ] = None,
    table: Annotated[
        Table, typer.Option(help="By model, by OOD set, by model on the standard four sets, or by family of models.")
    ] = Table.model,
    compare_paper: Annotated[
        bool, typer.Option("--compare-paper", help="Show the paper's figures and the difference beside ours.")
    ] = False,
    positive: Annotated[
        Positive, typer.Option(help="Which side FPR95 takes as positive: id (the paper) or ood (OpenOOD).")
    ] = Positive.id,
    cache: Annotated[
        Path | None, typer.Option(help="Where features are kept between runs \\[default: the user's cache folder].")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing between runs.")] = False,
    samples: Annotated[
        int, typer.Option(min=0, help="Show the N hardest images of each set on the page; 0 keeps images out of it.")
    ] = 6,
    json: Annotated[bool, typer.Option("--json", help="Print the rows as JSON and nothing else.")] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print only where the results are.")] = False,
) -> None:
    """Compare OOD detection methods on networks and data sets.

    Without arguments it runs `digits`: handwritten digits and three small networks that come with the package,
    nothing to download. It prints a table and writes results.csv, results.json, table.md, table.tex and
    report.html, a page to look at.
    """
    from oodshape.benchmark.run import Options
    from oodshape.benchmark.spec import Benchmark
    from oodshape.core.machine import default_cache
    from oodshape.report.benchmark_files import bench_files

    chosen = Benchmark.load(benchmark)
    options = Options(
        models=_words(models),
        methods=_words(methods),
        limit=limit,
        cache=None if no_cache else (cache or default_cache()),
        data=data,
        weights=weights,
        positive=positive.value,
        samples=samples,
        progress=False if json or quiet else None,
    )
    folder = out or Path("oodshape-results") / chosen.name
    results = bench_files(chosen, options, folder, table.value, paper=compare_paper)
    if json:
        import json as encoder

        typer.echo(encoder.dumps([vars(row) for row in results.rows]))
        return
    console = _console()
    if not quiet:
        from oodshape.report import show, tables_of

        for part in tables_of(results, table.value, paper=compare_paper):
            show(part, console)
    typer.echo(f"page: {folder / 'report.html'}")


@app.command()
def report(
    results: Annotated[
        Path, typer.Argument(metavar="RESULTS", help="A results.json, or the folder of a benchmark run.")
    ],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="The page to write \\[default: report.html beside the results].")
    ] = None,
) -> None:
    """Write the page of a benchmark run again, from its results alone.

    The page is one file that opens in any browser and needs no network: a leaderboard that sorts and filters, the
    paper's figures where it has any, each method's figures, and the images that are hardest for it.
    """
    from oodshape.benchmark.results import Results
    from oodshape.report import write_page

    page = out or (results if results.is_dir() else results.parent) / "report.html"
    write_page(Results.load(results), page)
    typer.echo(f"page: {page}")


@app.command()
def study(
    name: Annotated[str, typer.Argument(metavar="NAME", help="A study, or `all`; an unknown name lists them.")],
    benchmark: Annotated[
        str, typer.Option(metavar="NAME|FILE", help="A benchmark that comes with oodshape, or a TOML file.")
    ] = "digits",
    features: Annotated[
        list[Path] | None,
        typer.Option(help="A network's folder of feature files, or a folder of such folders, in place of a benchmark."),
    ] = None,
    panel: Annotated[
        Path | None,
        typer.Option(help="With --features: a folder with NETWORK/scrambled.npz, where they are not beside the rest."),
    ] = None,
    models: Annotated[str, typer.Option(help="Only these networks, separated by commas.")] = "",
    limit: Annotated[
        int | None, typer.Option(min=1, help="At most N images of each set, drawn with a fixed seed.")
    ] = None,
    surrogates: Annotated[
        int, typer.Option(min=1, help="How many noise images of a kind to make where the benchmark has none.")
    ] = 50_000,
    out: Annotated[Path, typer.Option(help="Where tables and figures go.")] = Path("oodshape-results/studies"),
    data: Annotated[
        Path | None, typer.Option(envvar="OODSHAPE_DATA", help="The folder that holds the data sets.")
    ] = None,
    weights: Annotated[
        Path | None,
        typer.Option(envvar="OODSHAPE_WEIGHTS", help="The folder that holds weights, NETWORK.safetensors or .pth."),
    ] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where features are kept between runs \\[default: the user's cache folder].")
    ] = None,
) -> None:
    """Run a study of the paper: OptFS with OOD data, sweeps, shaping functions, and more.

    Each writes a table (CSV, Markdown, LaTeX), figures (SVG, PDF, PNG) and a page with both. Folders of feature files
    hold head.npz (weight, bias), train.npz, test.npz or val.npz, and one file per OOD set (features, labels);
    gaussian and uniform are surrogates; scrambled is the panel that `auto` chooses by.
    """
    from oodshape.studies.table import chosen, networks, possible, write

    names = chosen(name)
    found = networks(benchmark, features or [], _words(models), limit, surrogates, data, cache, panel, weights)
    for network in found:
        typer.echo(network.describe())
    can = possible(names, found) if name == "all" else names
    for each in names:
        if each not in can:
            typer.echo(f"skipped {each}: a network has no panel (scrambled.npz)")
    for each in can:
        for path in write(each, found, out):
            typer.echo(f"wrote {path}")


@app.command()
def methods() -> None:
    """List the methods: what each does, what it needs, when it fails, and its settings."""
    from oodshape.methods.describe import method_lines
    from oodshape.report.columns import show_columns

    show_columns(("method", "what it does", "needs", "fails", "settings"), method_lines(), _console())


@app.command()
def models() -> None:
    """List the networks, their family, and where their weights come from."""
    from oodshape.networks.zoo import MODELS
    from oodshape.report.columns import show_columns

    rows = [(entry.name, entry.family, entry.id_set, str(entry.classes), entry.weights) for entry in MODELS.values()]
    show_columns(("network", "family", "trained on", "classes", "weights"), rows, _console())


@app.command()
def data(
    data: Annotated[
        Path | None, typer.Option(envvar="OODSHAPE_DATA", help="The folder that holds the data sets.")
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the data sets of the paper's benchmarks: what is there, where to get the rest, where to put it."""
    from oodshape.cli.data_sets import data_facts, data_lines
    from oodshape.report.columns import show_columns

    facts = data_facts(data)
    if json:
        import json as encoder

        typer.echo(encoder.dumps(facts))
        return
    heads = ("set", "role", "state", "images", "where to get it", "where to put it")
    show_columns(heads, data_lines(facts), _console())
    if data is None:
        sys.stderr.write("no data folder was named: --data DIR or OODSHAPE_DATA\n")
