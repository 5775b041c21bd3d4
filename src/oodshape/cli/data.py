"""oodshape data: parses, calls, prints."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.completion import benchmark_names
from oodshape.cli.options import DataOption
from oodshape.core.errors import InputError

PANEL = "Downloads"
YesOption = Annotated[bool, typer.Option("--yes", help="Download without asking.", rich_help_panel=PANEL)]


def data(
    *,
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="BENCHMARK|get NAME",
            autocompletion=benchmark_names,
            help="List the sets of a benchmark \\[default: a line per benchmark], or download what a benchmark, a data "
            "set or a network needs.",
        ),
    ] = None,
    data: DataOption = None,
    weights: Annotated[
        Path | None,
        typer.Option(
            envvar="OODSHAPE_WEIGHTS",
            help="Also download the weights of the networks, into this folder.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    yes: YesOption = False,
    unverified: Annotated[
        bool,
        typer.Option(
            "--unverified",
            help="Also download files whose checksum is not published; their digest is printed.",
            rich_help_panel=PANEL,
        ),
    ] = False,
) -> None:
    """List the data sets of the benchmarks: what is there, where to get and put the rest. `data get` downloads it.

    A download is verified by size and checksum, resumed after a break, and unpacked at the place where benchmarks look
    for it. Nothing is downloaded twice. With OODSHAPE_OFFLINE=1 only the files in DATA/downloads are used.
    """
    from oodshape.cli import data_sets

    chosen = names or []
    if chosen[:1] == ["get"]:
        if not chosen[1:]:
            raise typer.BadParameter("name a benchmark, a data set or a network after get")
        data_sets.get(data_sets.wanted_files(chosen[1:], data, weights), yes=yes, unverified=unverified)
        return
    if len(chosen) > 1:
        raise typer.BadParameter(f"one benchmark at most, got {' '.join(chosen)}")
    if data is not None and not data.is_dir():
        raise InputError(f"there is no folder {data}; --data names the folder that holds the data sets")
    benchmark = chosen[0] if chosen else None
    lines = data_sets.describe(data, benchmark) if benchmark else data_sets.overview(data)
    typer.echo("\n".join(lines))  # never wrapped: addresses stay whole
    if data is None:
        sys.stderr.write("no data folder was named: --data DIR or OODSHAPE_DATA\n")
