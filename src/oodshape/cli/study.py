"""oodshape study: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from oodshape.benchmark.spec import Settings
from oodshape.cli.shared_options import Compared, words
from oodshape.cli.terminal import say


def study(
    *,
    name: Annotated[str, typer.Argument(metavar="NAME")],
    benchmark: Annotated[str, typer.Option(metavar="NAME|FILE")] = "digits",
    features: list[Path] | None = None,
    compared: Compared,
    methods: str = "",
    compare_paper: bool = False,
    ood: Annotated[str, typer.Option(metavar="NAME")] = "",
    settings: Settings | None = None,
    out: Path = Path("oodshape-results/studies"),
) -> None:
    """Run a study of the paper: OptFS with OOD data, sweeps, shaping functions, and more.

    Each writes a table (CSV, Markdown, LaTeX) and figures (SVG, PDF, PNG). Folders of feature files hold head.npz
    (weight, bias), train.npz, test.npz or val.npz, and one file per OOD set (features, labels); gaussian and uniform
    are surrogates; scrambled is a proxy OOD set of `auto`.

    Args:
        name: A study, or `all`; an unknown name lists them.
        benchmark: A benchmark that comes with oodshape, or a TOML file.
        features: A network's folder of feature files, or a folder of such folders, in place of a benchmark.
        methods: The methods to compare, or package.module:Name (generalisation).
        compare_paper: Show the paper's figures and the difference next to ours (validation, variants, dynamic, limits).
        ood: The OOD set that stands for real OOD data [default: the benchmark's, or the largest]; for generalisation:
            the only one [default: all].
        settings: Hyperparameters, as for bench [default: the benchmark's, or the paper's for the network that a folder
            is named after].
        out: The folder for tables and figures.
    """
    from oodshape.methods.registry import find_record
    from oodshape.report.tables.paper import check_in_paper
    from oodshape.studies.catalog import select_studies, write_study
    from oodshape.studies.load_networks import load_networks

    compared_names = tuple(find_record(each).id for each in words(methods))
    names = select_studies(name, compared_names)
    how: dict[str, Any] = {"settings": settings, **compared.as_kwargs()}
    loaded = load_networks(benchmark, features or [], **how)
    networks = [network.with_options(ood, compared_names) for network in loaded]
    for network in networks:
        say(network.describe())
    if compare_paper:
        check_in_paper(names, {network.name: network.id_set for network in networks})
    for each in names:
        for path in write_study(each, networks, out, paper=compare_paper):
            say(f"wrote {path}")
