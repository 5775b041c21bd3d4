"""Options of `bench` that are OpenOOD's: its settings, its search, its full spectrum, its lists."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Annotated

import typer

from oodshape.core.errors import InputError

if TYPE_CHECKING:
    from oodshape.benchmark.spec import Benchmark

PANEL = "OpenOOD"


class Settings(Enum):
    """Whose hyperparameters methods have."""

    general = "general"
    imagenet = "imagenet"
    cifar10 = "cifar10"
    cifar100 = "cifar100"
    authors_code = "authors-code"
    openood = "openood"


@dataclass(frozen=True)
class OpenOod:
    """What an OpenOOD benchmark may be told beside the options of every benchmark."""

    settings: Annotated[
        Settings | None,
        typer.Option(
            metavar="KIND",
            help="Whose hyperparameters: general, the paper's for an ID set, those of its authors' code, or OpenOOD's, "
            "fitted on what it fits on \\[default: as the benchmark says].",
            rich_help_panel=PANEL,
        ),
    ] = None
    tuned: Annotated[
        bool,
        typer.Option(
            "--tuned", help="Choose settings on OOD validation images, as OpenOOD does.", rich_help_panel=PANEL
        ),
    ] = False
    full_spectrum: Annotated[
        bool,
        typer.Option(
            "--full-spectrum",
            help="Count ID images of another look (ImageNet-V2, -C, -R) as ID.",
            rich_help_panel=PANEL,
        ),
    ] = False
    with_es: Annotated[bool, typer.Option("--with-es", help="And those of ImageNet-ES.", rich_help_panel=PANEL)] = False
    other_lists: Annotated[
        bool,
        typer.Option(
            "--other-lists", help="Take lists of images that are not the published ones.", rich_help_panel=PANEL
        ),
    ] = False

    def of(self, benchmark: Benchmark) -> Benchmark:
        """The benchmark with these settings and this spectrum."""
        if self.with_es and not self.full_spectrum:
            raise InputError("--with-es is a part of --full-spectrum; give both")
        if self.full_spectrum:
            benchmark = benchmark.full_spectrum("es" if self.with_es else "")
        return benchmark if self.settings is None else benchmark.with_settings(self.settings.value)
