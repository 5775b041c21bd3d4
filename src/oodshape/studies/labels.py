"""Scatters of methods: names beside the points, families in the legend, axes that spread what lies near 100."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from oodshape.report.method_kinds import CHOICE, FAMILIES, family
from oodshape.report.palette import PALE, TEXT
from oodshape.report.styles import style
from oodshape.studies.drawing import MARKERS, below, line_style, marker

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.figure import Figure

FLOOR = 0.01  # percent, the least that is drawn as missing to an AUROC of 100
TOWARDS = "logarithmic towards 100"
SIZE = 5.8  # of the names, in points
# where a name may stand beside its point, in points; the nearest first
PLACES = ((4, 0), (-4, 0), (5, 0), (-5, 0), (0, 6), (0, -6), (4, 5), (4, -5), (-4, 5), (-4, -5), (0, 8), (0, -8))
FAR = tuple((dx, dy) for dy in (10, -10, 15, -15, 21, -21) for dx in (6, -6, 16, -16))  # with a line to the point
Box = tuple[float, float, float, float]


class Point(NamedTuple):
    """A method and its place in a figure; a ring marks what was chosen."""

    name: str
    x: float
    y: float
    ring: bool = False


def missing(auroc: float) -> float:
    """What is missing to an AUROC of 100 %, in percent, on a logarithmic axis never 0."""
    return max(100 * (1 - auroc), FLOOR)


def toward_hundred(axes: Axes, *sides: str) -> None:
    """Make axes ("x", "y") of what is missing to 100 logarithmic, and name their places by the AUROC itself."""
    from matplotlib.ticker import LogLocator, NullLocator

    for side in sides:
        axis: Axis = getattr(axes, f"{side}axis")
        getattr(axes, f"set_{side}scale")("log")
        axis.set_inverted(True)
        axis.set_major_locator(LogLocator(subs=(1, 2, 3, 5)))
        axis.set_major_formatter(lambda value, place: f"{100 - value:g}")
        axis.set_minor_locator(NullLocator())


def scatter(axes: Axes, points: Sequence[Point]) -> None:
    """A marker per method in its family's colour, and the line on which x = y, as far as it lies in the picture."""
    for point in points:
        axes.plot([point.x], [point.y], marker(point.name), color=line_style(point.name)["color"], markersize=4.5)
        if point.ring:
            axes.plot([point.x], [point.y], "o", color=TEXT, fillstyle="none", markersize=8, markeredgewidth=0.8)
    wide, high = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    low, top = max(wide[0], high[0]), min(wide[1], high[1])
    if low < top:
        axes.plot([low, top], [low, top], color=PALE, linestyle=":", linewidth=0.9, scalex=False, scaley=False)


def name_points(axes: Axes, points: Sequence[Point]) -> None:
    """The names of points beside them where there is room: what was chosen and OptFS first, then the best."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    scale, room = figure.dpi / 72, axes.get_window_extent()
    at = {point: axes.transData.transform((point.x, point.y)) for point in points}
    half = {point: (4.5 if point.ring else 2.5) * scale for point in points}
    taken: list[Box] = [(x - half[p], y - half[p], x + half[p], y + half[p]) for p, (x, y) in at.items()]
    first = (CHOICE, "optfs")
    for point in sorted(points, key=lambda one: (not one.ring, family(one.name) not in first, -sum(at[one]))):
        left, down = at[point]
        wide, high = 0.59 * SIZE * scale * len(point.name), 1.1 * SIZE * scale
        for dx, dy in (*PLACES, *FAR):
            start = left + dx * scale - (wide if dx < 0 else wide / 2 if dx == 0 else 0)
            middle = down + dy * scale
            box = (start, middle - high / 2, start + wide, middle + high / 2)
            inside = box[0] > room.x0 and box[2] < room.x1 and box[1] > room.y0 and box[3] < room.y1
            if inside and all(box[2] < a or box[0] > c or box[3] < b or box[1] > d for a, b, c, d in taken):
                _write(axes, point, dx, dy)
                taken.append(box)
                break


def _write(axes: Axes, point: Point, dx: float, dy: float) -> None:
    side = "left" if dx > 0 else "right" if dx < 0 else "center"
    look: Any = {"textcoords": "offset points", "ha": side, "va": "center", "fontsize": SIZE}
    if (dx, dy) in FAR:
        look["arrowprops"] = {"arrowstyle": "-", "color": PALE, "linewidth": 0.4, "shrinkA": 0, "shrinkB": 2}
    axes.annotate(point.name, (point.x, point.y), (dx, dy), color=line_style(point.name)["color"], **look)


def families(figure: Figure, names: Sequence[str]) -> None:
    """A legend below the axes of the families that these methods belong to."""
    from matplotlib.lines import Line2D

    first = {family(name): name for name in reversed(names)}
    there = [own for own in FAMILIES if own in first]
    handles = [
        Line2D([], [], linestyle="none", marker=MARKERS[own], color=style(first[own]).color, markersize=4.5)
        for own in there
    ]
    below(figure, 2, handles, [FAMILIES[own] for own in there])
