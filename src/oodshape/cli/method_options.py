"""Options of the commands that compare methods: what is looked at, and how it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from oodshape.cli.shared_options import DataOption, cache_folder, resolve_device, words
from oodshape.cli.terminal import show_progress
from oodshape.core.errors import InputError
from oodshape.core.options import CacheOptions, Help, ModelOptions, RunOptions, SubsetOptions

Settings = Literal["general", "imagenet", "cifar10", "cifar100", "authors-code", "openood"]


def _check_results(path: Path) -> Path:
    """Refuse a missing file before the slow import of torch."""
    found = path / "results.json" if path.is_dir() else path
    if not found.is_file():
        raise InputError(f"there is no file {found}")
    return path


ResultsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RESULTS", help="A results.json, or the folder of a benchmark run.", callback=_check_results
    ),
]
ColumnsOption = Annotated[
    str,
    typer.Option(
        metavar="METRICS",
        help="The columns of the tables, separated by commas, e.g. auroc,near-auroc,aupr-out,image-ms: metrics, and "
        "with near- or far- their means over these OOD sets. An unknown name lists all \\[default: auroc,fpr95].",
    ),
]


@dataclass(frozen=True, kw_only=True)
class Compared(ModelOptions, SubsetOptions, CacheOptions, RunOptions):
    """The networks and images of a benchmark, and how they run."""

    device: Annotated[str | None, Help("auto (a GPU if there is one), cpu, cuda, cuda:N, mps or xpu.")] = "auto"
    models: Annotated[str, Help("Only these networks, by name or id, separated by commas.")] = ""
    data: DataOption = None
    weights: Annotated[
        Path | None,
        typer.Option(envvar="OODSHAPE_WEIGHTS", help="The folder that holds weights, NETWORK.safetensors or .pth."),
    ] = None

    def as_kwargs(self) -> dict[str, Any]:
        """The same as options of a run, with the device and the cache folder that are meant."""
        resolved = resolve_device(self)
        run = {"progress": show_progress(), "cache": cache_folder(self.cache), "models": words(self.models)}
        return vars(resolved) | run
