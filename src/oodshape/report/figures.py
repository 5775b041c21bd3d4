"""Figures as SVG strings: histograms of scores, ROC curves, shaping functions.

Axes and words take the colour of the text around them (`currentColor`) and the background is transparent, so that
a figure suits light and dark pages. A method has the same colour and the same dashes in every figure.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Literal
from xml.etree import ElementTree
from zlib import crc32

import numpy as np

from oodshape.curves import Curve, Theta

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TEXT = "#010203"  # stands for the colour of the text until the SVG is written
# Okabe and Ito's colours for all readers; black is the text's colour, and gray replaces yellow, too pale on white.
PALETTE = ("#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", TEXT, "#888888")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (4, 1.5)),
    (0, (1, 1)),
    (0, (8, 1.5)),
    (0, (4, 1, 1, 1, 1, 1)),
    (0, (5, 1.5, 1, 1.5)),  # methods of one's own
)
_LOOK: Any = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.titley": 1.0,  # given, matplotlib need not search a place for it: a quarter of the time
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.15,
    "grid.linewidth": 0.6,
    "xtick.bottom": False,  # tick marks and clipping would need ids, which collide when a page holds many figures
    "ytick.left": False,
    "legend.frameon": False,
    "legend.fontsize": 8.5,
    "lines.linewidth": 1.8,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT),
    "grid.color": TEXT,
}


@dataclass(frozen=True)
class Style:
    """How the lines of a method look, in matplotlib's terms."""

    color: str
    dashes: Any


@cache
def style(method: str) -> Style:
    """The style of a method: by its place in the table of methods, or by its name for a method of one's own.

    >>> style("msp").color, style("optfs-e").color
    ('#E69F00', '#CC79A7')
    """
    from oodshape.methods import METHODS

    if method not in METHODS:
        return Style(PALETTE[crc32(method.encode()) % len(PALETTE)], DASHES[-1])
    turn, place = divmod(list(METHODS).index(method), len(PALETTE))
    return Style(PALETTE[place], DASHES[turn % (len(DASHES) - 1)])


def histogram(curve: Curve, title: str | None = None) -> str:
    """An SVG of the scores of ID images (filled) and of OOD images (a line in the method's colour)."""
    title = curve.method if title is None else title
    edges = np.linspace(curve.low, curve.high, len(curve.id_counts) + 1)
    inside, outside = (np.divide(counts, max(sum(counts), 1)) for counts in (curve.id_counts, curve.ood_counts))

    def paint(axes: Axes) -> None:
        axes.stairs(inside, edges, fill=True, color=TEXT, alpha=0.25, clip_on=False, label="ID")
        color = style(curve.method).color
        axes.stairs(outside, edges, color=color, linewidth=1.6, clip_on=False, label="OOD")
        axes.set(title=title, xlabel="score", yticks=[], ylim=(0, 1.05 * max(inside.max(), outside.max())))
        axes.spines["left"].set_visible(False)
        axes.locator_params(axis="x", nbins=5)
        axes.legend(handlelength=1.2, borderaxespad=0.0)

    return _svg(2.7, 1.8, f"Histogram of {title} scores: ID and {curve.ood}", paint, margins=(0.15, 0.42, 0.15, 0.22))


def roc(curves: Sequence[Curve]) -> str:
    """An SVG of the ROC curves of several methods on one OOD set, with a line at 95 % of ID accepted."""

    def paint(axes: Axes) -> None:
        axes.plot([0, 1], [0.95, 0.95], color=TEXT, linewidth=0.8, linestyle=":", clip_on=False)
        for curve in curves:
            _line(axes, curve.method, curve.fpr, curve.tpr, curve.method)
        axes.set(xlabel="OOD accepted", ylabel="ID accepted", xlim=(0, 1), ylim=(0, 1))
        _legend(axes, "lower center")

    legend = 0.18 * ((len(curves) + 1) // 2)
    label = f"ROC curves of {', '.join(curve.method for curve in curves)}"
    return _svg(2.7, 2.65 + legend, label, paint, margins=(0.55, 0.5 + legend, 0.1, 0.1))


def shaping(shapes: Sequence[Theta]) -> str:
    """An SVG of theta(z) of several methods; methods with the same function share a line, those without have none."""
    alike: dict[tuple[Any, Any], list[str]] = {}
    for shape in shapes:
        if not shape.is_identity:
            alike.setdefault((shape.z, shape.theta), []).append(shape.method)

    def paint(axes: Axes) -> None:
        axes.axhline(1.0, color=TEXT, linewidth=0.8, linestyle=":", clip_on=False)
        for (z, theta), methods in alike.items():
            others = f" and {len(methods) - 2} more" if len(methods) > 2 else ""
            _line(axes, methods[0], z, theta, ", ".join(methods[:2]) + others)
        axes.set(xlabel="feature value z", ylabel="θ(z)")
        axes.margins(x=0)
        if alike:
            _legend(axes, "outside lower center")

    names = ", ".join(name for methods in alike.values() for name in methods)
    return _svg(4.4, 3.0, f"Shaping functions of {names}", paint)


def _line(axes: Axes, method: str, x: Sequence[float], y: Sequence[float], label: str) -> None:
    look = style(method)
    (line,) = axes.plot(x, y, color=look.color, linestyle=look.dashes, clip_on=False)
    line.set_label("\u200b" + label)  # without it, matplotlib hides a name that begins with an underscore


def _legend(axes: Axes, place: Literal["lower center", "outside lower center"]) -> None:
    figure = axes.get_figure(root=True)
    assert figure is not None
    figure.legend(loc=place, borderaxespad=0.2, ncols=2, handlelength=2.4, columnspacing=1.2)


def _svg(
    width: float,
    height: float,
    label: str,
    paint: Callable[[Axes], None],
    margins: tuple[float, float, float, float] | None = None,
) -> str:
    """The painted axes as an SVG, in inches; margins (left, bottom, right, top) that are given save half the time."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    text = io.StringIO()
    with rc_context(_LOOK), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)  # the reader's fonts have it
        figure = Figure(figsize=(width, height), layout="constrained" if margins is None else None)
        if margins is not None:
            left, bottom, right, top = margins
            figure.subplots_adjust(left / width, bottom / height, 1 - right / width, 1 - top / height)
        paint(figure.add_subplot())
        figure.savefig(text, format="svg", transparent=True)
    return _lean(text.getvalue(), label)


def _lean(svg: str, label: str) -> str:
    """Matplotlib's SVG as one labelled <svg> element, without metadata, ids, references and needless digits."""
    root = ElementTree.fromstring(svg)
    for parent in list(root.iter()):
        for child in list(parent):
            if child.tag.endswith(("}metadata", "}defs")):
                parent.remove(child)
    for element in root.iter():
        element.tag = element.tag.rpartition("}")[2]
        element.tail = None
        element.text = element.text if element.tag == "text" else None
        for name, value in list(element.attrib.items()):
            if name in ("id", "clip-path") or value.startswith("rotate(-0 "):
                del element.attrib[name]
            elif name == "d":
                element.set(name, re.sub(r"\s+", " ", re.sub(r"\d+\.\d+", _short, value)).strip())
            elif name == "style":
                value = re.sub("font-family: [^;]*", "font-family: system-ui, sans-serif", value)
                element.set(name, value.replace(TEXT, "currentColor"))
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": label}
    return ElementTree.tostring(root, encoding="unicode")


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}"
