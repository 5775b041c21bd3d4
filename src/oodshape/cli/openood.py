"""Options of `bench` that are OpenOOD's: its settings, its full spectrum, its lists."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

import typer

if TYPE_CHECKING:
    from oodshape.benchmark.spec import Benchmark

PANEL = "OpenOOD"


Settings = Literal["general", "imagenet", "cifar10", "cifar100", "authors-code", "openood"]


@dataclass(frozen=True)
class OpenOod:
    """What an OpenOOD benchmark may be told besides the options of every benchmark."""

    settings: Annotated[
        Settings | None,
        typer.Option(
            metavar="KIND",
            help="Whose hyperparameters: general, the paper's for an ID set, those of its authors' code, or OpenOOD's, "
            "fitted on what it fits on \\[default: as the benchmark says].",
            rich_help_panel=PANEL,
        ),
    ] = None
    full_spectrum: Annotated[
        bool,
        typer.Option(
            "--full-spectrum",
            help="Count shifted ID images as ID: those of ImageNet-V2, -C and -R, or CIFAR-10-C.",
            rich_help_panel=PANEL,
        ),
    ] = False
    other_lists: Annotated[
        bool,
        typer.Option(
            "--other-lists", help="Take lists of images that are not the published ones.", rich_help_panel=PANEL
        ),
    ] = False

    def of(self, benchmark: Benchmark) -> Benchmark:
        """The benchmark with these settings and this spectrum."""
        if self.full_spectrum:
            benchmark = benchmark.full_spectrum()
        return benchmark if self.settings is None else benchmark.with_settings(self.settings)
