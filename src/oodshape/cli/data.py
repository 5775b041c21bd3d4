"""oodshape data: parses, calls, prints."""

from __future__ import annotations

import json as encoder
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from oodshape.cli.completion import benchmark_names
from oodshape.cli.options import DataOption
from oodshape.core.errors import InputError

if TYPE_CHECKING:
    from oodshape.cli.data_sets import Wanted

PANEL = "Downloads"


@dataclass(frozen=True, kw_only=True)
class Downloading:
    """How files are downloaded."""

    yes: Annotated[bool, typer.Option("--yes", help="Download without asking.", rich_help_panel=PANEL)] = False
    unverified: Annotated[
        bool,
        typer.Option(
            "--unverified",
            help="Also download files whose checksum is not published; their digest is printed.",
            rich_help_panel=PANEL,
        ),
    ] = False
    offline: Annotated[
        bool,
        typer.Option("--offline", help="Use what is in DATA/downloads, no network.", rich_help_panel=PANEL),
    ] = False

    def get(self, wanted: Wanted) -> None:
        """Download files, as the options say."""
        from oodshape.cli.data_sets import get

        get(wanted, yes=self.yes, unverified=self.unverified, offline=self.offline)


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
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
    weights: Annotated[
        Path | None,
        typer.Option(
            envvar="OODSHAPE_WEIGHTS",
            help="Also download the weights of the networks, into this folder.",
            rich_help_panel=PANEL,
        ),
    ] = None,
    downloading: Downloading,
) -> None:
    """List the data sets of the benchmarks: what is there, where to get and put the rest. `data get` downloads it.

    A download is verified by size and checksum, resumed after a break, and unpacked at the place where benchmarks look
    for it. Nothing is downloaded twice.
    """
    from oodshape.cli import data_sets

    chosen = names or []
    if chosen[:1] == ["get"]:
        if not chosen[1:]:
            raise typer.BadParameter("name a benchmark, a data set or a network after get")
        downloading.get(data_sets.wanted_files(chosen[1:], data, weights))
        return
    if len(chosen) > 1:
        raise typer.BadParameter(f"one benchmark at most, got {' '.join(chosen)}")
    if data is not None and not data.is_dir():
        raise InputError(f"there is no folder {data}; --data names the folder that holds the data sets")
    benchmark = chosen[0] if chosen else None
    facts = data_sets.data_facts(data, benchmark) if json else []
    lines = data_sets.describe(data, benchmark) if benchmark else data_sets.overview(data)
    typer.echo(encoder.dumps(facts) if json else "\n".join(lines))  # never wrapped: addresses stay whole
    if data is None:
        sys.stderr.write("no data folder was named: --data DIR or OODSHAPE_DATA\n")
