"""What all figures of studies share: one column of a paper, the methods' colours, three file formats."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oodshape.core.files import replacing
from oodshape.report.method_kinds import FAMILIES, family
from oodshape.report.palette import INKS, OOD_COLOR, PALE, TEXT
from oodshape.report.styles import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 3.3  # inches: one column of a paper
FORMATS = ("svg", "pdf", "png")
MARKERS = dict(zip(FAMILIES, ("o", "s", "D", "^", "*", "P"), strict=True))
_LOOK: Any = {
    "font.size": 7.5,
    "axes.titlesize": 7.5,
    "axes.labelsize": 7.5,
    "xtick.labelsize": 7.0,
    "ytick.labelsize": 7.0,
    "legend.fontsize": 6.8,
    "legend.frameon": False,
    "legend.handlelength": 2.8,
    "legend.borderaxespad": 0.2,
    "text.parse_math": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "oodshape",  # the same figure, the same file
    "pdf.fonttype": 42,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.linewidth": 0.6,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.alpha": 0.2,
    "grid.linewidth": 0.5,
    "xtick.major.size": 2.0,
    "ytick.major.size": 2.0,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.5,
    **dict.fromkeys(("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"), TEXT),
}
# names in figures that are no methods: variants of OptFS (V) have its colour, what saw OOD images that of these
_OPTFS = INKS["optfs"].light
_VARIANTS: dict[str, tuple[str, Any]] = {
    "optfs with OOD": (OOD_COLOR, "-"),
    **dict.fromkeys(("real", "gaussian", "uniform", "mean-gap"), (_OPTFS, "-")),
    "logistic": (INKS["logits"].light, "-"),
    "hinge": (INKS["distance"].light, "-"),
    "ours (V)": (_OPTFS, style("optfs-v").dashes),
    "ours (E)": (_OPTFS, style("optfs-e").dashes),
    "dynamic": (INKS["own"].light, (0, (1, 1))),
}


@contextmanager
def look() -> Iterator[None]:
    """The settings of matplotlib in which every figure of a study is drawn and saved."""
    from matplotlib import rc_context

    with rc_context(_LOOK), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph .* missing", UserWarning)
        yield


def panels(height: float, rows: int = 1, columns: int = 1, **settings: Any) -> tuple[Figure, list[Axes]]:
    """A figure one column wide and its axes, row by row."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH, height), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, **settings)
    return figure, list(axes.ravel())


def line_style(name: str) -> dict[str, Any]:
    """Colour and dashes of a method or variant, the same in every figure."""
    if name in _VARIANTS:
        color, dashes = _VARIANTS[name]
    else:
        color, dashes = style(name).color, style(name).dashes
    return {"color": color, "linestyle": dashes}


def marker(name: str) -> str:
    """The marker of a method's family."""
    return MARKERS[family(name)]


def dots(axes: Axes, labels: Sequence[str], values: Sequence[float], each: Sequence[Sequence[float]]) -> None:
    """A line per label: a dot for the mean in percent, a short mark for each OOD set; the first label on top."""
    for place, (label, value, single) in enumerate(zip(labels, values, each, strict=True)):
        axes.plot([100 * v for v in single], [place] * len(single), "|", color=PALE, markersize=5)
        name = label.rpartition(" · ")[2] if " · " in label else label
        axes.plot([100 * value], [place], "o", color=line_style(name)["color"], markersize=4.5)
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.grid(axis="y", visible=False)


def below(figure: Figure, columns: int, handles: Any = None, labels: Any = None) -> None:
    """A legend below the axes."""
    if handles is None:
        found: dict[str, Any] = {}
        for axes in figure.axes:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                found.setdefault(label, handle)
        handles, labels = list(found.values()), list(found)
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, columnspacing=1.0)


def save(figure: Figure, folder: Path, name: str) -> list[Path]:
    """Write the figure as SVG, PDF and PNG; the paths written."""
    stamps: dict[str, Any] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{name}.{kind}" for kind in FORMATS]
    with look():
        for path, kind in zip(paths, FORMATS, strict=True):
            with replacing(path) as temporary:
                figure.savefig(temporary, format=kind, dpi=220, metadata=stamps[kind])
    return paths


def slug(name: str) -> str:
    """A name as a part of a file's name.

    >>> slug("MLP-Mixer (B/16)")
    'mlp-mixer-b-16'
    """
    return re.sub(r"[^a-z0-9_]+", "-", name.lower()).strip("-") or "network"
