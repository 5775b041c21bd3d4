"""oodshape data: parses, calls, prints."""

from __future__ import annotations

import json as encoder
import sys
from typing import Annotated

import typer

from oodshape.cli.completion import benchmark_names
from oodshape.cli.options import DataOption
from oodshape.cli.terminal import console


def data(
    benchmark: Annotated[
        str | None,
        typer.Argument(
            metavar="[BENCHMARK]",
            autocompletion=benchmark_names,
            help="Only the sets of this benchmark \\[default: all].",
        ),
    ] = None,
    data: DataOption = None,
    json: Annotated[bool, typer.Option("--json", help="Print the list as JSON.")] = False,
) -> None:
    """List the data sets of the paper's benchmarks and of OpenOOD's: what is there, where to get and put the rest."""
    from oodshape.cli.data_sets import data_facts, data_lines
    from oodshape.core.columns import show_columns

    facts = data_facts(data, benchmark)
    if json:
        typer.echo(encoder.dumps(facts))
        return
    heads = ("set", "role", "state", "images", "where to get it", "where to put it")
    show_columns(heads, data_lines(facts), console())
    if data is None:
        sys.stderr.write("no data folder was named: --data DIR or OODSHAPE_DATA\n")
