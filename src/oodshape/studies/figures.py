"""Draw a figure per study: the tidy rows of one network -> a matplotlib Figure, one column of a paper wide."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from oodshape.methods.records import FEATURED
from oodshape.report.palette import ID_COLOR, OOD_COLOR, PALE, TEXT, WASH
from oodshape.studies import plotting

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

AUROC, FPR = "AUROC (%)", "FPR95 (%)"
STEPS = "; not to scale"
# the paper's figure of shaping functions, row by row: element-wise methods left, whole-vector methods right
PANELS = {
    "react": "ReAct",
    "ash-p": "ASH-P",
    "bfact": "BFAct",
    "ash-b": "ASH-B",
    "vra-p": "VRA-P",
    "ash-s": "ASH-S",
    "optfs-v": "OptFS, ID data only",
    "ash-rand": "ASH-Rand",
}


def draw_variants(frame: DataFrame) -> Figure:
    """Draw the mean AUROC of each variant, and a mark for each OOD set."""
    names = list(frame["variant"].unique())
    figure, (axes,) = plotting.panels(0.55 + 0.19 * len(names))
    for place, name in enumerate(names):
        values = 100 * frame.loc[frame["variant"] == name, "auroc"]
        axes.plot(values, [place] * len(values), "|", color=PALE, markersize=5)
        axes.plot([values.mean()], [place], "o", color=plotting.line_style(name)["color"], markersize=4.5)
    plotting.label_rows(axes, names)
    axes.grid(axis="y", visible=False)
    axes.set(xlabel=f"{AUROC}; marks: OOD sets", ylabel="variant")
    return figure


def draw_validation(frame: DataFrame) -> Figure:
    """Draw the AUROC on each OOD set of theta with and without its OOD data."""
    figure, (axes,) = plotting.panels(0.85 + 0.22 * len(frame))
    for place, pair in enumerate(100 * frame[["auroc_with", "auroc_without"]].to_numpy(float)):
        axes.plot(pair, [place] * 2, color=PALE, linewidth=0.8)
    without, real = plotting.line_style("ours (V)")["color"], plotting.line_style("odin")["color"]
    axes.plot(100 * frame["auroc_without"], range(len(frame)), "o", color=without, label="ID data only")
    axes.plot(100 * frame["auroc_with"], range(len(frame)), "D", color=real, fillstyle="none", label="with OOD data")
    plotting.label_rows(axes, frame["ood"].tolist())
    axes.set(xlabel=AUROC, ylabel="OOD set")
    plotting.add_legend(figure, 2)
    return figure


def draw_dynamic(frame: DataFrame) -> Figure:
    """Draw theta(z) with the class of the unshaped features, and with classes that may change."""
    figure, (axes,) = plotting.panels(2.2)
    for name, part in frame.groupby("curve", sort=False):
        axes.plot((part["left"] + part["right"]) / 2, part["theta"], label=name, **plotting.line_style(str(name)))
    axes.set(xlabel="feature value z", ylabel="θ(z)")
    plotting.add_legend(figure, 2)
    return figure


def draw_intervals(frame: DataFrame) -> Figure:
    """Draw mean AUROC and FPR95 over the number of intervals."""
    return _draw_sweep(frame, "k", [str(k) for k in frame["k"].unique()], f"number of intervals K (0: Energy){STEPS}")


def draw_limits(frame: DataFrame) -> Figure:
    """Draw mean AUROC and FPR95 over the percentiles that limit the intervals."""
    names = [f"{100 * tail:g}" for tail in frame["tail"].unique()]
    return _draw_sweep(frame, "tail", names, f"limits at the percentiles p and 100 - p: p{STEPS}")


def _draw_sweep(frame: DataFrame, column: str, ticks: list[str], label: str) -> Figure:
    figure, pair = plotting.panels(3.1, 2, sharex=True)
    means = frame.groupby(["method", column], sort=False)[["auroc", "fpr95"]].mean().reset_index()
    for axes, metric, name in zip(pair, ("auroc", "fpr95"), (AUROC, FPR), strict=True):
        for method, part in means.groupby("method", sort=False):
            axes.plot(range(len(part)), 100 * part[metric], "o", label=method, **plotting.line_style(str(method)))
        axes.set_ylabel(f"mean {name}")
    pair[1].set_xticks(range(len(ticks)), ticks)
    pair[1].set_xlabel(label)
    plotting.add_legend(figure, 2)
    return figure


def draw_compatibility(frame: DataFrame) -> Figure:
    """Draw bars of mean AUROC and FPR95: each score or method alone (pale) and with OptFS."""
    figure, pair = plotting.panels(3.1, 2, sharex=True)
    means = frame.groupby(["base", "shaped"], sort=False)[["auroc", "fpr95"]].mean()
    bases = list(dict.fromkeys(frame["base"]))
    for axes, metric, name in zip(pair, ("auroc", "fpr95"), (AUROC, FPR), strict=True):
        for shaped, shift in ((False, -0.2), (True, 0.2)):
            heights = [100 * means.loc[(base, shaped), metric] for base in bases]
            color = plotting.line_style(FEATURED)["color"] if shaped else WASH
            bars = axes.bar(np.arange(len(bases)) + shift, heights, 0.38, color=color)
            bars.set_label("+ OptFS" if shaped else "base")
            axes.bar_label(bars, fmt="%.0f", fontsize=6, padding=1)
        axes.set_ylabel(f"mean {name}")
        axes.set_ylim(0, 112)
        axes.grid(axis="x", visible=False)
    pair[1].set_xticks(range(len(bases)), bases)
    pair[1].set_xlabel("score or method")
    plotting.add_legend(figure, 2)
    return figure


def draw_shaping(frame: DataFrame) -> Figure:
    """Draw eight panels: theta(z) of each method, and the optimal theta with OOD data, scaled to fit it."""
    figure, axes = plotting.panels(5.6, 4, 2, sharex=True)
    curves = dict(list(frame.groupby("curve", sort=False)))
    for each, (name, title) in zip(axes, PANELS.items(), strict=True):
        _draw_profile(each, title, curves.get(name), curves["optfs with OOD"])
    for each in axes[-2:]:
        each.set_xlabel("feature value z")
    for each in axes[::2]:
        each.set_ylabel("θ(z)")
    plotting.add_legend(figure, 1)
    return figure


def _draw_profile(axes: Axes, title: str, curve: DataFrame | None, optimal: DataFrame) -> None:
    axes.set_title(title)
    axes.axhline(0.0, color=TEXT, linewidth=0.4)
    if curve is None:
        axes.text(0.5, 0.5, "not defined here", transform=axes.transAxes, ha="center")
        return
    name = str(curve["curve"].iloc[0])
    middle = (curve["left"] + curve["right"]).to_numpy() / 2
    theta, best = curve["theta"].to_numpy(), optimal["theta"].to_numpy()
    scaled = scale_to_fit(best, theta, curve["count"].to_numpy())
    axes.plot(
        middle,
        scaled,
        label="OptFS with OOD data, scaled to fit",
        **plotting.line_style("optfs with OOD") | {"linewidth": 0.9},
    )
    axes.plot(middle, theta, **plotting.line_style(name) | {"linestyle": "-", "linewidth": 1.5})
    if curve["std"].notna().any():
        std = curve["std"].to_numpy()
        color = plotting.line_style(name)["color"]
        axes.fill_between(middle, theta - std, theta + std, color=color, alpha=0.2, linewidth=0)
    both = np.concatenate([scaled, theta])
    low, high = min(float(np.nanmin(both)), 0.0), max(float(np.nanmax(both)), 0.0)
    margin = 0.1 * (high - low) or 0.5
    axes.set_ylim(low - margin, high + margin)  # from the lines only: the bands may be much wider


def scale_to_fit(best: Any, theta: Any, count: Any) -> Any:
    """Scale `best` by least squares to `theta`, over the intervals that hold values."""
    known = np.isfinite(theta) & (count > 0)
    factor = (best[known] @ theta[known]) / (best[known] @ best[known])
    return best * factor


def draw_weights(frame: DataFrame) -> Figure:
    """Draw mean and standard deviation of the weights w_max over the feature value, ID and OOD."""
    figure, (axes,) = plotting.panels(2.3)
    for (name, part), color in zip(frame.groupby("set", sort=False), (ID_COLOR, OOD_COLOR), strict=False):
        middle = (part["left"] + part["right"]) / 2
        label = str(name)
        axes.plot(middle, part["mean"], color=color, label=label, linestyle="-" if color == ID_COLOR else "--")
        axes.fill_between(
            middle, part["mean"] - part["std"], part["mean"] + part["std"], color=color, alpha=0.15, linewidth=0
        )
    axes.axhline(0.0, color=TEXT, linewidth=0.4)
    axes.set(xlabel="feature value z", ylabel="weight of the predicted class")
    plotting.add_legend(figure, 2)
    return figure


def draw_intuition(frame: DataFrame) -> Figure:
    """Draw a = E[I_ID] as the unit vector, and b = E[I_OOD] of each OOD set at its angle and length."""
    rows = sorted(frame.itertuples(index=False), key=lambda row: -float(row.y))  # type: ignore[arg-type]
    top = max(1.15 * float(frame["y"].max()), 0.12 * len(rows), 0.3)
    figure, (axes,) = plotting.panels(0.55 + 2.0 * (top + 0.12))
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
    return figure


def draw_bars(frame: DataFrame) -> Figure:
    """Draw bars of the mean AUROC of every method, that of OptFS (E) as a dashed line."""
    means = frame.groupby("method", sort=False)["auroc"].mean()
    figure, (axes,) = plotting.panels(0.7 + 0.155 * len(means))
    for place, (name, value) in enumerate(means.items()):
        axes.barh(place, 100 * value, 0.7, color=plotting.line_style(str(name))["color"])
        axes.text(101.5, place, f"{100 * value:.1f}", va="center", fontsize=6.5)
    if FEATURED in means:
        axes.axvline(100 * means[FEATURED], **plotting.line_style(FEATURED) | {"color": TEXT, "linewidth": 0.9})
    plotting.label_rows(axes, [str(name) for name in means.index])
    axes.set(xlim=(0, 100), xlabel=f"mean {AUROC}; dashed: {FEATURED}", ylabel="method")
    axes.grid(axis="y", visible=False)
    return figure


def draw_generalisation(table: DataFrame) -> Figure:
    """Draw a point per method: mean AUROC on ConvNets and on transformers and MLPs; both are equal on the line."""
    known = table.dropna()
    figure, (axes,) = plotting.panels(4.0)
    axes.set(
        xlabel=f"ConvNets: mean {AUROC}, {plotting.TOWARDS}\ndotted: x = y",
        ylabel=f"transformers and MLPs: mean {AUROC},\n{plotting.TOWARDS}",
    )
    if known.empty:
        axes.text(0.5, 0.5, "needs a ConvNet and another network", transform=axes.transAxes, ha="center")
        return figure
    points = [
        plotting.Point(str(name), plotting.missing_percent(x), plotting.missing_percent(y))
        for name, x, y in zip(known["method"], known["convnets"], known["others"], strict=True)
    ]
    plotting.scale_toward_hundred(axes, "x", "y")
    plotting.draw_scatter(axes, points)
    plotting.add_family_legend(figure, [point.name for point in points])
    plotting.name_points(axes, points)  # last, because the legend moves the axes
    return figure
