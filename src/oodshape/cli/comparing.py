"""Options of the commands that compare methods: what is looked at, and what is drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from oodshape.cli.completion import metric_names
from oodshape.cli.options import DataOption, HeadOption, LimitOption, words

CHANCE = "How much is chance"
SeedOption = Annotated[int, typer.Option(min=0, help="Decides whatever is drawn at random.", rich_help_panel=CHANCE)]

ColumnsOption = Annotated[
    str,
    typer.Option(
        metavar="METRICS",
        autocompletion=metric_names,
        help="The columns of the tables, separated by commas, e.g. auroc,near-auroc,aupr-out,image-ms: metrics, and "
        "with near- or far- their means over these OOD sets. An unknown name lists all \\[default: auroc,fpr95].",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """What is drawn at random, and how often."""

    seed: SeedOption = 0
    seeds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Run with so many seeds where anything is random; means, and their spread.",
            rich_help_panel=CHANCE,
        ),
    ] = 1
    resamples: Annotated[
        int, typer.Option(min=1, help="Resamples behind each interval or spread.", rich_help_panel=CHANCE)
    ] = 200

    def said(self) -> dict[str, Any]:
        """The same as options of a run."""
        return vars(self).copy()


@dataclass(frozen=True, kw_only=True)
class Compared:
    """What of a benchmark is looked at, and where it lies."""

    models: Annotated[str, typer.Option(help="Only these networks, separated by commas.")] = ""
    limit: LimitOption = None
    data: DataOption = None
    weights: Annotated[
        Path | None,
        typer.Option(envvar="OODSHAPE_WEIGHTS", help="The folder that holds weights, NETWORK.safetensors or .pth."),
    ] = None
    head: HeadOption = None

    def said(self) -> dict[str, Any]:
        """The same as options of a run."""
        return {"models": words(self.models)} | {
            name: getattr(self, name) for name in ("limit", "data", "weights", "head")
        }
