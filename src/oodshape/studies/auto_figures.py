"""The study of `auto`: its table, a scatter per network, and the regret on all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from oodshape.report.palette import PALE, TEXT
from oodshape.studies.auto_choice import AUTO, LATER, ONE, PAPER, regret
from oodshape.studies.drawing import below, line_style, panels
from oodshape.studies.labels import TOWARDS, Point, families, missing, name_points, scatter, toward_hundred
from oodshape.studies.printing import number, percent
from oodshape.studies.sentences import led

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

# well-known choices, drawn beside that of `auto`
LOOKS: dict[str, dict[str, Any]] = {
    **{name: {"marker": "o"} for name in ("msp", "energy", "ash-s", "optfs-e")},
    ONE: {"marker": "D", "fillstyle": "none", "color": TEXT, "markersize": 5.5},
    AUTO: {"marker": "D", "color": TEXT, "markersize": 5.5},
}


def print_choice(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Per network and OOD set: rank correlations, the best method in hindsight, `auto`, and its regret in points."""
    table = regret(frame)
    shown = table[["network", "ood"]].copy()
    shown["rank corr. paper"] = table["rank_paper"].map(number)
    shown["rank corr. all"] = table["rank_all"].map(number)
    shown["auto AUROC"] = [percent(value, digits) for value in table["auroc_auto"]]
    shown["auto FPR95"] = [percent(value, digits) for value in table["fpr95_auto"]]
    groups = {"paper": ("of the paper", [PAPER]), "all": ("of all", [PAPER, LATER])}
    for against, (title, kinds) in groups.items():
        part = frame[frame["group"].isin(kinds)]
        places = zip(table["network"], table["ood"], strict=True)
        shown[f"best {title}"] = [led(_found(part, network, ood), digits) for network, ood in places]
        regrets = [percent(value, digits) for value in table[f"regret_auto_{against}"]]
        shown["regret" if against == "paper" else "regret to all"] = regrets
    shown["regret of one"] = [percent(value, digits) for value in table["regret_one_paper"]]
    return shown.rename(columns={"ood": "OOD set"})


def _found(frame: DataFrame, network: str, ood: str) -> dict[str, float]:
    """By method: the AUROC on an OOD set of a network, or the mean over them."""
    part = frame[(frame["network"] == network) & ((frame["ood"] == ood) | (ood == "mean"))]
    return {str(name): float(value) for name, value in part.groupby("method", sort=False)["auroc"].mean().items()}


def draw_choice(frame: DataFrame) -> Figure:
    """A point per method: mean AUROC against the panels, and against real OOD sets; chosen ones have a ring."""
    keys = ["method", "group", "panel_auroc", "chosen"]
    means = frame.groupby(keys, sort=False, dropna=False)["auroc"].mean().reset_index()
    figure, (axes,) = panels(4.4)
    # the best lie near 100: a logarithm of what is missing keeps them apart
    points = [
        Point(str(row["method"]), missing(row["panel_auroc"]), missing(row["auroc"]), bool(row["chosen"]))
        for row in means[means["group"].isin([PAPER, LATER])].to_dict("records")
    ]
    toward_hundred(axes, "x", "y")
    scatter(axes, points)
    fused = missing(float(means.loc[means["method"] == AUTO, "auroc"].iloc[0]))
    axes.axhline(fused, color=TEXT, linewidth=0.9, linestyle="--")
    axes.set_ylabel(f"real OOD sets: mean AUROC (%),\n{TOWARDS}")
    axes.set_xlabel(
        "scrambled ID images and classes left out:\nmean AUROC (%), "
        f"{TOWARDS}\n"
        "rings: fused in auto; dashed: auto; dotted: x = y"
    )
    families(figure, [point.name for point in points])
    name_points(axes, points)
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
