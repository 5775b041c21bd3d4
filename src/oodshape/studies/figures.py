"""Draw a figure per study: the tidy rows of all networks -> a matplotlib Figure with a panel or column for each."""

from __future__ import annotations

from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from pandas import DataFrame

from oodshape.methods.records import FEATURED
from oodshape.report.method_styles import FAMILIES, display_name, method_family
from oodshape.report.palette import ID_COLOR, OOD_COLOR, PALE, TEXT, WASH
from oodshape.studies import plotting

AUROC, FPR = "AUROC (%)", "FPR95 (%)"
# the paper's figure of shaping functions: element-wise methods, then whole-vector methods
PANELS = ("optfs-v", "react", "bfact", "vra-p", "ash-p", "ash-b", "ash-s", "ash-rand")
# the methods that the scatter plot names, each with a marker of its own
NAMED = dict(zip(("auto", FEATURED, "msp", "energy", "react", "ash-s", "vim", "knn"), "*^osDPXv", strict=True))


def draw_variants(frame: DataFrame) -> Figure:
    """Draw the mean AUROC of each variant, and a mark for each OOD set."""
    names = list(frame["variant"].unique())
    figure, found = plotting.network_panels(frame, 0.3 + 0.19 * len(names), shared="xy")
    for part, (axes,) in found:
        for place, name in enumerate(names):
            values = 100 * part.loc[part["variant"] == name, "auroc"]
            axes.plot(values, [place] * len(values), "|", color=PALE, markersize=5)
            axes.plot([values.mean()], [place], "o", color=plotting.line_style(name)["color"], markersize=4.5)
        plotting.label_rows(axes, names)
        axes.grid(axis="y", visible=False)
        axes.set_xlabel(f"{AUROC}\ndot: mean, marks: OOD sets")
    return figure


def draw_validation(frame: DataFrame) -> Figure:
    """Draw the AUROC on each OOD set of theta with and without its OOD data."""
    most = frame.groupby("network").size().max()
    figure, found = plotting.network_panels(frame, 0.5 + 0.2 * most, shared="x")
    without, real = plotting.line_style("Ours (V)")["color"], plotting.line_style("odin")["color"]
    for part, (axes,) in found:
        for place, pair in enumerate(100 * part[["auroc_with", "auroc_without"]].to_numpy(float)):
            axes.plot(pair, [place] * 2, color=PALE, linewidth=0.8)
        axes.plot(100 * part["auroc_without"], range(len(part)), "o", color=without, label="ID data only")
        axes.plot(100 * part["auroc_with"], range(len(part)), "D", color=real, fillstyle="none", label="with OOD data")
        plotting.label_rows(axes, part["ood"].tolist())
        axes.set_xlabel(AUROC)
    return plotting.add_legend(figure, 2)


def draw_dynamic(frame: DataFrame) -> Figure:
    """Draw theta(z) with the class of the unshaped features, and with classes that may change."""
    figure, found = plotting.network_panels(frame, 1.7)
    for part, (axes,) in found:
        for name, curve in part.groupby("curve", sort=False):
            middle = (curve["left"] + curve["right"]) / 2
            # the curves are almost the same
            width = {"linewidth": 1.2} if name == "Dynamic" else {"linewidth": 3.0, "alpha": 0.4}
            axes.plot(middle, curve["theta"], label=name, **plotting.line_style(str(name)) | width)
        axes.set_xlabel("feature value z")
    found[0][1][0].set_ylabel("θ(z)")
    return plotting.add_legend(figure, 2)


def draw_sweep(frame: DataFrame, column: str, factor: int, label: str) -> Figure:
    """Draw mean AUROC and FPR95 over the values in a column, which are shown times the factor."""
    figure, found = plotting.network_panels(frame, 2.6, 2)
    ticks = [f"{factor * value:g}" for value in frame[column].unique()]
    for part, pair in found:
        means = part.groupby(["method", column], sort=False)[["auroc", "fpr95"]].mean().reset_index()
        for axes, metric in zip(pair, ("auroc", "fpr95"), strict=True):
            for method, line in means.groupby("method", sort=False):
                look = plotting.line_style(str(method)) | {"label": display_name(str(method)), "markersize": 2.5}
                axes.plot(range(len(line)), 100 * line[metric], "o", **look)
            axes.set_xticks(range(len(ticks)), ticks, rotation=90 if len(found) > 1 else 0)
        pair[-1].set_xlabel(label)
    _label_metrics(found[0][1])
    return plotting.add_legend(figure, 2)


def _label_metrics(pair: list[Axes]) -> None:
    for axes, name in zip(pair, (AUROC, FPR), strict=True):
        axes.set_ylabel(f"mean {name}")


def draw_compatibility(frame: DataFrame) -> Figure:
    """Draw bars of mean AUROC and FPR95: each score or method alone (pale) and with OptFS."""
    figure, found = plotting.network_panels(frame, 2.6, 2)
    bases = list(dict.fromkeys(frame["base"]))
    for part, pair in found:
        means = part.groupby(["base", "shaped"], sort=False)[["auroc", "fpr95"]].mean()
        for axes, metric in zip(pair, ("auroc", "fpr95"), strict=True):
            for shaped, shift in ((False, -0.2), (True, 0.2)):
                heights = [100 * means.loc[(base, shaped), metric] for base in bases]
                color = plotting.line_style(FEATURED)["color"] if shaped else WASH
                bars = axes.bar(np.arange(len(bases)) + shift, heights, 0.38, color=color)
                bars.set_label("+ OptFS" if shaped else "base")
                axes.bar_label(bars, fmt="%.0f", fontsize=5, padding=1)
            axes.set_ylim(0, 112)
            axes.grid(axis="x", visible=False)
            axes.set_xticks(range(len(bases)), map(display_name, bases))
    _label_metrics(found[0][1])
    return plotting.add_legend(figure, 2)


def draw_shaping(frame: DataFrame) -> Figure:
    """Draw a row per method: its theta(z), and the optimal theta with OOD data, both scaled to a largest value of 1."""
    figure, found = plotting.network_panels(frame, 6.6, len(PANELS))
    for part, column in found:
        curves = dict(list(part.groupby("curve", sort=False)))
        for axes, name in zip(column, PANELS, strict=True):
            _draw_profile(axes, curves.get(name), curves["optfs with OOD"])
        column[-1].set_xlabel("feature value z")
    for axes, name in zip(found[0][1], PANELS, strict=True):
        axes.set_ylabel(display_name(name))
    figure.supylabel("θ(z) / max |θ|; bands: standard deviation", fontsize=7.5)
    return plotting.add_legend(figure, 3)


def _draw_profile(axes: Axes, curve: DataFrame | None, optimal: DataFrame) -> None:
    axes.axhline(0.0, color=TEXT, linewidth=0.4)
    axes.set_ylim(-1.15, 1.15)
    if curve is None:
        axes.text(0.5, 0.6, "not defined here", transform=axes.transAxes, ha="center")
        return
    name = str(curve["curve"].iloc[0])
    middle, there = (curve["left"] + curve["right"]).to_numpy() / 2, curve["count"].to_numpy() > 0
    theta, best = curve["theta"].to_numpy(), optimal["theta"].to_numpy()
    size = np.nanmax(np.abs(theta[there]))
    look = plotting.line_style("optfs with OOD") | {"linewidth": 0.9, "label": "OptFS with OOD data"}
    axes.plot(middle, best / np.abs(best[there]).max(), **look)
    look = plotting.line_style(name) | {"linestyle": "-"}
    axes.plot(middle, theta / size, **look, label="OptFS, ID data only" if name == "optfs-v" else "other methods")
    low, high = ((theta + sign * curve["std"].to_numpy()) / size for sign in (-1, 1))
    axes.fill_between(middle, low, high, color=look["color"], alpha=0.2, linewidth=0)


def draw_weights(frame: DataFrame) -> Figure:
    """Draw mean and standard deviation of the weights w_max over the feature value, ID and OOD."""
    figure, found = plotting.network_panels(frame, 1.8, shared="")
    for part, (axes,) in found:
        for (name, rows), color in zip(part.groupby("set", sort=False), (ID_COLOR, OOD_COLOR), strict=False):
            middle, mean, std = (rows["left"] + rows["right"]) / 2, rows["mean"], rows["std"]
            axes.plot(middle, mean, color=color, label=str(name), linestyle="-" if color == ID_COLOR else "--")
            axes.fill_between(middle, mean - std, mean + std, color=color, alpha=0.15, linewidth=0)
        axes.axhline(0.0, color=TEXT, linewidth=0.4)
        axes.set_xlabel("feature value z")
    found[0][1][0].set_ylabel("weight of the predicted class")
    return plotting.add_legend(figure, 4)


def draw_intuition(frame: DataFrame) -> Figure:
    """Draw a = E[I_ID] as the unit vector, and b = E[I_OOD] of each OOD set at its angle and length."""
    most = int(frame.groupby("network").size().max())
    top = max(1.15 * float(frame["y"].max()), 0.12 * most, 0.3)
    figure, found = plotting.network_panels(frame, 0.4 + 2.0 * (top + 0.12), across=1)
    for part, (axes,) in found:
        _draw_vectors(axes, part, top)
    return figure


def _draw_vectors(axes: Axes, frame: DataFrame, top: float) -> None:
    rows = sorted(frame.itertuples(index=False), key=lambda row: -float(row.y))  # type: ignore[arg-type]
    axes.set_aspect("equal")  # otherwise the drawn angles are wrong
    arrow: Any = {"arrowstyle": "-|>", "shrinkA": 0, "shrinkB": 0, "linewidth": 1.2}
    axes.annotate("", (1, 0), (0, 0), arrowprops=arrow | {"color": ID_COLOR})
    axes.annotate("a (ID)", (1, 0), (0, -9), textcoords="offset points", ha="right", color=ID_COLOR)
    for place, row in enumerate(rows):
        point = (float(row.x), float(row.y))  # type: ignore[arg-type]
        axes.annotate("", point, (0, 0), arrowprops=arrow | {"color": OOD_COLOR})
        # labels in a column, joined to the tips by thin lines, because the tips are close together
        position = (1.04, top * (0.95 - 0.85 * place / max(len(rows) - 1, 1)))
        text = f"{row.ood}: {row.degrees:.0f}°, {np.hypot(*point):.2f}"
        line = {"arrowstyle": "-", "color": PALE, "linewidth": 0.5, "shrinkA": 0, "shrinkB": 1}
        axes.annotate(text, point, position, va="center", fontsize=6.8, arrowprops=line, annotation_clip=False)
    axes.set(xlabel="along a, in units of |a|", ylabel="across a", ylim=(-0.12, top), xlim=(0, 1.02))


def draw_bars(frame: DataFrame) -> Figure:
    """Draw bars of the mean AUROC of every method, that of OptFS (E) as a dashed line."""
    names = list(map(str, frame["method"].unique()))
    figure, found = plotting.network_panels(frame, 0.5 + 0.155 * len(names))
    for part, (axes,) in found:
        means = part.groupby("method", sort=False)["auroc"].mean()
        for place, name in enumerate(names):
            if name in means.dropna():
                color, family = plotting.line_style(name)["color"], FAMILIES[method_family(name)]
                axes.barh(place, 100 * means[name], 0.7, color=color, label=family)
                axes.text(101.5, place, f"{100 * means[name]:.1f}", va="center", fontsize=6.5)
        if FEATURED in means.dropna():
            look = {"color": TEXT, "linewidth": 0.9, "label": display_name(FEATURED)}
            axes.axvline(100 * means[FEATURED], **plotting.line_style(FEATURED) | look)
        plotting.label_rows(axes, list(map(display_name, names)))
        axes.set(xlim=(0, 100), xlabel=f"AUROC (%), {_sets(part)}")
        axes.grid(axis="y", visible=False)
    return plotting.add_legend(figure, 2 if len(found) == 1 else 3)


def _sets(frame: DataFrame) -> str:
    names = frame["ood"].unique()
    return str(names[0]) if len(names) == 1 else f"mean over {len(names)} OOD sets"


def draw_generalisation(table: DataFrame) -> Figure:
    """Draw a point per method: mean AUROC on ConvNets against that on transformers, and against that on MLPs."""
    others = [name for name in table.columns[2:] if table[["ConvNets", name]].dropna().size]
    figure, panels = plotting.create_panels(3.6, 1, max(len(others), 1), sharey=True)
    if not others:
        panels[0].text(0.5, 0.5, "needs a ConvNet and another network", transform=panels[0].transAxes, ha="center")
        return figure
    for axes, other in zip(panels, others, strict=True):
        plotting.scale_toward_hundred(axes)
        points = table[["method", "ConvNets", other]].dropna().itertuples(index=False)
        for name, *aurocs in sorted(points, key=lambda point: point[0] not in NAMED):
            look: dict[str, Any] = {"color": WASH, "label": "other methods", "zorder": 1}
            if name in NAMED:
                look = {"color": plotting.line_style(name)["color"], "label": display_name(name)}
            axes.plot(*map(plotting.missing_percent, aurocs), NAMED.get(name, "."), **look)
        axes.axline((1, 1), (10, 10), color=PALE, linestyle=":", linewidth=0.9)
        note = f"both axes {plotting.TOWARDS}; dotted: x = y"
        axes.set(xlabel=f"ConvNets: mean {AUROC}\n{note}", ylabel=f"{other}: mean {AUROC}")
    return plotting.add_legend(figure, 3)
