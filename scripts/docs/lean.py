"""Figures for pages: one lean SVG element whose axes and words take the colour of the text around it."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from oodshape.report.palette import TEXT
from oodshape.studies.plotting import use_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# tick marks and clipping need ids, which collide when a page holds several figures
MORE = {
    "font.size": 9.0,
    "axes.titlesize": 9.5,
    "axes.labelsize": 9.0,
    "xtick.labelsize": 8.5,
    "ytick.labelsize": 8.5,
    "legend.fontsize": 8.5,
    "xtick.bottom": False,
    "ytick.left": False,
    "grid.color": TEXT,
    "lines.linewidth": 1.7,
}


def svg(size: tuple[float, float], label: str, *paints: Callable[[Axes], None], columns: int = 1) -> str:
    """Axes that `paints` have drawn into, as an SVG string with a label for screen readers; the size in inches."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    text = io.StringIO()
    with use_style(), rc_context(MORE):
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(len(paints) // columns, columns, squeeze=False)
        for axes, paint in zip(grid.flat, paints, strict=True):
            paint(axes)
            for artist in axes.findobj():
                artist.set_clip_on(False)
        figure.savefig(text, format="svg", transparent=True)
    return lean(text.getvalue(), label)


def lean(drawn: str, label: str) -> str:
    """Matplotlib's SVG as one labelled <svg> element, without metadata, ids, references and needless digits."""
    root = ElementTree.fromstring(drawn)
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
                value = re.sub("font-family: [^;]*|(?<=px) '[^;]*", _plain, value)
                element.set(name, value.replace(TEXT, "currentColor"))
    _, _, width, height = (float(part) for part in root.attrib["viewBox"].split())
    root.attrib |= {"xmlns": "http://www.w3.org/2000/svg", "role": "img", "aria-label": label}
    root.attrib |= {"width": f"{width * 4 / 3:.0f}", "height": f"{height * 4 / 3:.0f}"}
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _plain(family: re.Match[str]) -> str:
    named = family[0].startswith("font-family")
    return "font-family: system-ui, sans-serif" if named else " system-ui, sans-serif"


def _short(number: re.Match[str]) -> str:
    return f"{float(number[0]):.1f}"
