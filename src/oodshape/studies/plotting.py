"""Shared parts of the figures: size, colours, legends, scatter plots with named points, and three file formats."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from oodshape.core.files import replacing
from oodshape.report.method_styles import CHOICE, FAMILIES, family, style
from oodshape.report.palette import INKS, OOD_COLOR, PALE, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

WIDTH = 3.3  # inches: one column of a paper
FORMATS = ("svg", "pdf", "png")
MARKERS = dict(zip(FAMILIES, ("o", "s", "D", "^", "*", "P"), strict=True))
FLOOR = 0.01  # percent: the smallest drawn distance from an AUROC of 100
TOWARDS = "logarithmic towards 100"
SIZE = 5.8  # of the names, in points
# names that are not methods: variants of OptFS (V) have its colour, those fitted with OOD images the OOD colour
_OPTFS = INKS["optfs"].light
_VARIANTS: dict[str, tuple[str, Any]] = {
    "optfs with OOD": (OOD_COLOR, "-"),
    **dict.fromkeys(("real", "gaussian", "uniform"), (_OPTFS, "-")),
    "ours (V)": (_OPTFS, style("optfs-v").dashes),
    "ours (E)": (_OPTFS, style("optfs-e").dashes),
    "dynamic": (INKS["own"].light, (0, (1, 1))),
}


@contextmanager
def use_style() -> Iterator[None]:
    """Apply the matplotlib settings of all figures."""
    from matplotlib import style as matplotlib_style

    colors = dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT)
    with matplotlib_style.context(["oodshape.studies.paper", colors]), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


def panels(height: float, rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Figure, list[Axes]]:
    """Create a figure one column wide and its axes, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    return figure, list(axes.ravel())


def line_style(name: str) -> dict[str, Any]:
    """Return the colour and dashes of a method or variant, the same in every figure."""
    if name in _VARIANTS:
        color, dashes = _VARIANTS[name]
    else:
        color, dashes = style(name).color, style(name).dashes
    return {"color": color, "linestyle": dashes}


def label_rows(axes: Axes, names: Sequence[str]) -> None:
    """Label the rows of a figure, the first at the top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)


def add_legend(figure: Figure, columns: int, handles: Any = None, labels: Any = None) -> None:
    """Add a legend below the axes."""
    if handles is None:
        found: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                found.setdefault(label, handle)
        handles, labels = list(found.values()), list(found)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, columnspacing=1.0)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write the figure as SVG, PDF and PNG, and return the paths."""
    stamps: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    with use_style():
        for path, kind in zip(paths, FORMATS, strict=True):
            with replacing(path) as temporary:
                figure.savefig(temporary, format=kind, dpi=220, metadata=stamps[kind])
    return paths


def slug(name: str) -> str:
    """Turn a name into a part of a file name.

    >>> slug("MLP-Mixer (B/16)")
    'mlp-mixer-b-16'
    """
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-") or "network"


class Point(NamedTuple):
    """A method and its coordinates in a figure; a ring marks selected methods."""

    name: str
    x: float
    y: float
    ring: bool = False


def missing_percent(auroc: float) -> float:
    """Return the distance from an AUROC of 100 % in percent, at least FLOOR for a logarithmic axis."""
    return max(100 * (1 - auroc), FLOOR)


def scale_toward_hundred(axes: Axes, *sides: str) -> None:
    """Make axes ("x", "y") of `missing_percent` logarithmic, and label them with the AUROC."""
    from matplotlib.ticker import LogLocator, NullLocator

    for side in sides:
        axis: Axis = getattr(axes, f"{side}axis")
        getattr(axes, f"set_{side}scale")("log")
        axis.set_inverted(True)
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axis.set_major_formatter(lambda value, place: f"{100 - value:g}")
        axis.set_minor_locator(NullLocator())


def draw_scatter(axes: Axes, points: Sequence[Point]) -> None:
    """Draw a marker per method in its family's colour, and the visible part of the line x = y."""
    for point in points:
        axes.plot(
            [point.x], [point.y], MARKERS[family(point.name)], color=line_style(point.name)["color"], markersize=4.5
        )
        if point.ring:
            axes.plot([point.x], [point.y], "o", color=TEXT, fillstyle="none", markersize=8, markeredgewidth=0.8)
    wide, high = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    low, top = max(wide[0], high[0]), min(wide[1], high[1])
    if low < top:
        axes.plot([low, top], [low, top], color=PALE, linestyle=":", linewidth=0.9, scalex=False, scaley=False)


def name_points(axes: Axes, points: Sequence[Point]) -> None:
    """Write names to the right of points where there is room: selected methods and OptFS first, then the best."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    scale, right = figure.dpi / 72, axes.get_window_extent().x1
    at = {point: axes.transData.transform((point.x, point.y)) for point in points}
    taken = [(x, x, y) for x, y in at.values()]  # where a point or a name begins and ends, and its height
    for point in sorted(
        points, key=lambda one: (not one.ring, family(one.name) not in (CHOICE, "optfs"), -sum(at[one]))
    ):
        start, middle = at[point] + (4 * scale, 0)
        end = start + 0.59 * SIZE * len(point.name) * scale
        clear = all(end < first or start > last or abs(middle - y) > SIZE * scale for first, last, y in taken)
        if clear and end < right:
            taken.append((start, end, middle))
            place: Any = {"textcoords": "offset points", "va": "center", "fontsize": SIZE}
            axes.annotate(point.name, (point.x, point.y), (4, 0), color=line_style(point.name)["color"], **place)


def add_family_legend(figure: Figure, names: Sequence[str]) -> None:
    """Add a legend of the families of these methods below the axes."""
    from matplotlib.lines import Line2D

    first = {family(name): name for name in reversed(names)}
    there = [own for own in FAMILIES if own in first]
    handles = [
        Line2D([], [], linestyle="none", marker=MARKERS[own], color=style(first[own]).color, markersize=4.5)
        for own in there
    ]
    add_legend(figure, 2, handles, [FAMILIES[own] for own in there])
