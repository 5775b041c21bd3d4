"""Scatter plots of methods, with names next to the points where there is room."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from matplotlib.axes import Axes

from oodshape.report.method_styles import CHOICE, FAMILIES, display_name, method_family
from oodshape.report.palette import PALE, TEXT
from oodshape.studies.plotting import line_style

MARKERS = dict(zip(FAMILIES, ("o", "s", "D", "^", "*", "P"), strict=True))
SIZE, FEW = 5.8, 8  # of the names, in points; a number of names that can all be placed
# where the name of a point may stand, in points to the right and up; far away, with a line to it, if few have names
OFFSETS = ((5, 0), (-5, 0), *((side * (4 + up), way * up) for up in (8, 16, 26) for way in (1, -1) for side in (1, -1)))


class Point(NamedTuple):
    """A method and its coordinates in a figure; a ring marks selected methods."""

    name: str
    x: float
    y: float
    ring: bool = False


def draw_scatter(axes: Axes, points: Sequence[Point]) -> None:
    """Draw a marker per method in its family's colour, and the visible part of the line x = y."""
    for point in points:
        color = line_style(point.name)["color"]
        family = method_family(point.name)
        axes.plot([point.x], [point.y], MARKERS[family], color=color, markersize=4.5, label=FAMILIES[family])
        if point.ring:
            axes.plot([point.x], [point.y], "o", color=TEXT, fillstyle="none", markersize=8, markeredgewidth=0.8)
    wide, high = sorted(axes.get_xlim()), sorted(axes.get_ylim())
    low, top = max(wide[0], high[0]), min(wide[1], high[1])
    if low < top:
        axes.plot([low, top], [low, top], color=PALE, linestyle=":", linewidth=0.9, scalex=False, scaley=False)


def name_points(axes: Axes, points: Sequence[Point]) -> None:
    """Write names next to points where there is room: selected methods and OptFS first, then the best."""
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()
    scale, box = figure.dpi / 72, axes.get_window_extent()
    at = {point: axes.transData.transform((point.x, point.y)) for point in points}
    taken = [(x, x, y) for x, y in at.values()]  # where a point or a name begins and ends, and its height
    for point in sorted(
        points, key=lambda one: (not one.ring, method_family(one.name) not in (CHOICE, "optfs"), -sum(at[one]))
    ):
        name = display_name(point.name)
        wide = 0.59 * SIZE * len(name) * scale
        for right, up in OFFSETS if len(points) <= FEW else OFFSETS[:2]:
            start, middle = at[point] + (right * scale - (wide if right < 0 else 0), up * scale)
            end = start + wide
            clear = all(end < first or start > last or abs(middle - y) > SIZE * scale for first, last, y in taken)
            if clear and box.x0 < start and end < box.x1 and box.y0 < middle < box.y1:
                taken.append((start, end, middle))
                line: Any = {"arrowstyle": "-", "color": PALE, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 2}
                place: Any = {"textcoords": "offset points", "va": "center", "ha": "right" if right < 0 else "left"}
                place |= {"fontsize": SIZE, "color": line_style(point.name)["color"]}
                axes.annotate(name, (point.x, point.y), (right, up), arrowprops=line if up else None, **place)
                break
