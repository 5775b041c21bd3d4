"""The study of `auto`: its table, a scatter per network, and the regret on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oodshape.report.palette import PALE, TEXT
from oodshape.studies.auto_choice import AUTO, LATER, ONE, PAPER, regret
from oodshape.studies.drawing import below, line_style, marker, panels
from oodshape.studies.tables import number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FLOOR = 0.01  # percent, the least that is drawn as missing to an AUROC of 100
# well-known choices, drawn beside that of `auto`
LOOKS: dict[str, dict[str, Any]] = {
    **{name: {"marker": "o"} for name in ("msp", "energy", "ash-s", "optfs-e")},
    ONE: {"marker": "D", "fillstyle": "none", "color": TEXT, "markersize": 5.5},
    AUTO: {"marker": "D", "color": TEXT, "markersize": 5.5},
}


def print_choice(frame: DataFrame) -> DataFrame:
    """Per network and OOD set: rank correlations, the best method in hindsight, `auto`, and its regret in points."""
    table = regret(frame)
    shown = table[["network", "ood"]].copy()
    shown["rank corr. paper"] = table["rank_paper"].map(number)
    shown["rank corr. all"] = table["rank_all"].map(number)
    shown["auto AUROC"] = table["auroc_auto"].map(percent)
    shown["auto FPR95"] = table["fpr95_auto"].map(percent)
    for against, title in (("paper", "of the paper"), ("all", "of all")):
        named = zip(table[f"best_{against}"], table[f"auroc_best_{against}"], strict=True)
        shown[f"best {title}"] = [f"{name} {percent(value)}" for name, value in named]
        shown["regret" if against == "paper" else "regret to all"] = table[f"regret_auto_{against}"].map(percent)
    shown["regret of one"] = table["regret_one_paper"].map(percent)
    return shown.rename(columns={"ood": "OOD set"})


def draw_choice(frame: DataFrame) -> Figure:
    """A point per method: mean AUROC against the panels, and against real OOD sets; chosen ones have a ring."""
    keys = ["method", "group", "panel_auroc", "chosen"]
    means = frame.groupby(keys, sort=False, dropna=False)["auroc"].mean().reset_index()
    figure, (axes,) = panels(5.0)
    for row in means[means["group"].isin([PAPER, LATER])].to_dict("records"):
        # the best lie near 100: a logarithm of what is missing keeps them apart
        name, x, y = str(row["method"]), max(100 * (1 - row["panel_auroc"]), FLOOR), 100 * row["auroc"]
        axes.plot([x], [y], marker(name), color=line_style(name)["color"], label=name, markersize=4.5)
        if row["chosen"]:
            axes.plot([x], [y], "o", color=TEXT, fillstyle="none", markersize=8, markeredgewidth=0.8)
    fused = 100 * means.loc[means["method"] == AUTO, "auroc"].iloc[0]
    axes.axhline(fused, color=TEXT, linewidth=0.9, linestyle="--")
    axes.set(xscale="log", ylabel="real OOD sets: mean AUROC (%)")
    axes.invert_xaxis()
    axes.xaxis.set_major_formatter(lambda value, place: f"{100 - value:g}")
    axes.set_xlabel("scrambled ID images and classes left out:\nmean AUROC (%); rings: fused in auto; dashed: auto")
    below(figure, 3)
    return figure


def draw_regret(frame: DataFrame) -> Figure:
    """A line per network: mean AUROC of `auto` and of fixed choices, less that of the best paper method there."""
    means = frame.groupby(["network", "method", "group"], sort=False)["auroc"].mean().reset_index()
    names = list(dict.fromkeys(means["network"]))
    figure, (axes,) = panels(1.1 + 0.25 * len(names))
    axes.axvline(0.0, color=TEXT, linewidth=0.6)
    for place, network in enumerate(names):
        part = means[means["network"] == network].set_index("method")
        best = part.loc[part["group"] == PAPER, "auroc"].max()
        for name, shape in LOOKS.items():
            if name in part.index:
                look = {"color": line_style(name)["color"], "label": name if place == 0 else None} | shape
                axes.plot([100 * (part.loc[name, "auroc"] - best)], [place], linestyle="none", **look)
        axes.axhline(place, color=PALE, linewidth=0.3, zorder=0)
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set(xlabel="mean AUROC (%) less that of\nthe best paper method there", ylabel="network")
    below(figure, 3)
    return figure
