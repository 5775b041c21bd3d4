"""Shared parts of the figures: size, colours, legends, and three file formats."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from matplotlib import style as matplotlib_style
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullLocator
from pandas import DataFrame

from oodshape.core.files import replacing
from oodshape.report.method_styles import method_style
from oodshape.report.palette import INKS, OOD_COLOR, TEXT

WIDTH, WIDE = 3.3, 6.9  # inches: one column of a paper, and both
ACROSS = 4  # networks next to each other
FORMATS: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}  # with metadata
FLOOR = 0.01  # percent: the smallest drawn distance from an AUROC of 100
TOWARDS = "logarithmic towards 100"
# names that are not methods: variants of OptFS (V) have its colour, those fitted with OOD images the OOD colour
_OPTFS = INKS["optfs"].light
_VARIANTS: dict[str, tuple[str, Any]] = {
    "optfs with OOD": (OOD_COLOR, "-"),
    **dict.fromkeys(("Real", "Gaussian", "Uniform"), (_OPTFS, "-")),
    "Ours (V)": (_OPTFS, method_style("optfs-v").dashes),
    "Ours (E)": (_OPTFS, method_style("optfs-e").dashes),
    "Dynamic": (INKS["own"].light, (0, (1, 1))),
}


@contextmanager
def use_style() -> Iterator[None]:
    """Apply the matplotlib settings of all figures."""
    colors = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT)
    with matplotlib_style.context(["oodshape.studies.paper", colors]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


def create_panels(height: float, rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Figure, list[Axes]]:
    """Create a figure as wide as a column of a paper, or as both for several columns, and its axes, row by row."""
    figure = Figure(figsize=(WIDTH if columns == 1 else WIDE, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    return figure, list(axes.ravel())


def network_panels(
    frame: DataFrame, height: float, rows: int = 1, *, across: int = ACROSS, shared: str = "y"
) -> tuple[Figure, list[tuple[DataFrame, list[Axes]]]]:
    """Create `rows` axes of this height in all for each network, the first with its name.

    The axes of one row have the same scale in all networks along the `shared` sides. Returns the figure and, for each
    network, its part of the frame and its axes from top to bottom.
    """
    groups = list(frame.groupby("network", sort=False))
    across = min(across, len(groups))
    blocks = -(-len(groups) // across)
    figure, axes = create_panels(0.35 + height * blocks, rows * blocks, across)
    found: list[tuple[DataFrame, list[Axes]]] = []
    for place, (name, part) in enumerate(groups):
        block, column = divmod(place, across)
        own = [axes[(block * rows + row) * across + column] for row in range(rows)]
        own[0].set_title(str(name))
        for each, first in zip(own, found[0][1] if found else (), strict=False):
            for side in shared:
                getattr(each, f"share{side}")(first)
            each.tick_params(labelleft=column == 0 or "y" not in shared)
        for each in own[:-1]:
            each.tick_params(labelbottom=False)
        found.append((part.reset_index(drop=True), own))
    for each in axes[(blocks - 1) * rows * across :]:
        each.set_visible(any(each in own for _, own in found))
    return figure, found


def line_style(name: str) -> dict[str, Any]:
    """Return the colour and dashes of a method or variant, the same in every figure."""
    color, dashes = _VARIANTS.get(name) or (method_style(name).color, method_style(name).dashes)
    return {"color": color, "linestyle": dashes}


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows of a figure, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def add_legend(figure: Figure, columns: int) -> Figure:
    """Return the figure with a legend below the axes: every label once."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            found.setdefault(label, handle)
    short = {"handlelength": 1.0} if figure.get_figwidth() == WIDTH else {}
    place: Any = {"loc": "outside lower center", "ncols": columns, "columnspacing": 1.0}
    figure.legend(list(found.values()), list(found), **place | short)
    return figure


def save_figure(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write the figure as SVG, PDF and PNG, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    with use_style():
        for kind, metadata in FORMATS.items():
            with replacing(folder / f"{name}.{kind}") as temporary:
                figure.savefig(temporary, format=kind, dpi=220, metadata=metadata)
    return [folder / f"{name}.{kind}" for kind in FORMATS]


def missing_percent(auroc: float) -> float:
    """Return the distance from an AUROC of 100 % in percent, at least FLOOR for a logarithmic axis."""
    return max(100 * (1 - auroc), FLOOR)


def scale_toward_hundred(axes: Axes) -> None:
    """Make both axes, of `missing_percent`, logarithmic, and label them with the AUROC."""
    for side in "xy":
        axis: Axis = getattr(axes, f"{side}axis")
        getattr(axes, f"set_{side}scale")("log")
        axis.set_inverted(True)
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter(lambda value, place: f"{100 - value:g}")
        axis.set_minor_locator(NullLocator())
