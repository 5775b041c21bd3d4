"""The study of `auto`: the AUROC of each method on the proxy OOD sets and on real OOD data, table and figures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from oodshape.features.features import Features
from oodshape.methods.auto import Auto, split, try_on_proxies
from oodshape.methods.detector import Method
from oodshape.methods.fit_all import fit_all
from oodshape.methods.fusion import SCRAMBLED, Fusion
from oodshape.methods.registry import METHODS, NEWER
from oodshape.report.palette import PALE, TEXT
from oodshape.studies.methods import measured
from oodshape.studies.plotting import (
    TOWARDS,
    Point,
    below,
    families,
    line_style,
    missing,
    name_points,
    panels,
    scatter,
    toward_hundred,
)
from oodshape.studies.tables import number, percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

DEFAULT = Auto()
PAPER, LATER, AUTO, ONE = "paper", "newer", "auto", "auto, best one"
# well-known choices, drawn beside that of `auto`
LOOKS: dict[str, dict[str, Any]] = {
    **{name: {"marker": "o"} for name in ("msp", "energy", "ash-s", "optfs-e")},
    ONE: {"marker": "D", "fillstyle": "none", "color": TEXT, "markersize": 5.5},
    AUTO: {"marker": "D", "color": TEXT, "markersize": 5.5},
}


def choice(
    train: Features,
    inside: Features,
    ood: Mapping[str, Features],
    proxy: Sequence[Features],
    methods: Mapping[str, Method] = METHODS,
    auto: Auto = DEFAULT,
) -> DataFrame:
    """method, group, proxy_auroc, chosen, ood, fpr95, auroc of every method that works on features, and of `auto`.

    `proxy_auroc` is what `auto` ranks by: fitted on its fitting part, the mean AUROC over the proxy sets;
    `scrambled_auroc` is that on scrambled images alone. The other columns belong to the method fitted on the whole
    training set, and to `auto` with its fusion (group auto) and with the best-ranked candidate alone.
    """
    from pandas import DataFrame

    single = {name: method for name, method in methods.items() if method.perturb.eps == 0 and not method.wants_proxy}
    tried = try_on_proxies(
        {name: method.unlabelled() for name, method in single.items()}, *split(train, auto.share), proxy
    )
    means = dict(tried.ranking)
    seen = {name: {"proxy_auroc": means.get(name, np.nan), "scrambled_auroc": np.nan} for name in single}
    for name, values in tried.aurocs.items():
        seen[name]["scrambled_auroc"] = dict(zip(tried.proxies, values, strict=True)).get(SCRAMBLED, np.nan)
    fused = Method(score=auto).fit(train, proxy=proxy)
    best = Method(score=replace(auto, fuse=1)).fit(train, proxy=proxy)
    assert isinstance(fused.scorer, Fusion)
    chosen = {component.name for component in fused.scorer.components}
    rows: list[dict[str, Any]] = []
    for name, detector in fit_all(single, train).items():
        group = LATER if name in NEWER else PAPER
        said = {"method": name, "group": group, **seen[name], "chosen": name in chosen}
        rows += measured(detector, inside, ood, **said)
    for name, detector in ((AUTO, fused), (ONE, best)):
        rows += measured(detector, inside, ood, method=name, group=name, proxy_auroc=np.nan, chosen=False)
    return DataFrame(rows)


def regret(frame: DataFrame) -> DataFrame:
    """A row per network and OOD set, and one for the mean over them: rank correlations, and the regret of `auto`.

    Takes the columns of `choice` and `network`. `rank_paper` and `rank_all` are Spearman's correlation of
    `proxy_auroc` and `auroc` over the paper's methods and over all; `best_paper` and `best_all` the best single
    method in hindsight; a regret is its AUROC less that of `auto`, below 0 where `auto` is ahead.
    """
    from pandas import DataFrame

    rows = []
    for network, part in frame.groupby("network", sort=False):
        keys = ["method", "group", "proxy_auroc"]
        mean = part.groupby(keys, sort=False, dropna=False)[["fpr95", "auroc"]].mean().reset_index()
        for name, one in (*part.groupby("ood", sort=False), ("mean", mean)):
            rows.append({"network": network, "ood": name} | _row(one.set_index("method")))
    return DataFrame(rows)


def _row(one: DataFrame) -> dict[str, Any]:
    """What one OOD set says; the index are the methods."""
    sets = {"paper": one[one["group"] == PAPER], "all": one[one["group"].isin([PAPER, LATER])]}
    row: dict[str, Any] = {}
    for name, part in sets.items():
        row[f"rank_{name}"] = part["proxy_auroc"].rank().corr(part["auroc"].rank())
    for name, part in sets.items():  # a group may be empty where methods were picked
        row |= {f"best_{name}": part["auroc"].idxmax() if len(part) else "", f"auroc_best_{name}": part["auroc"].max()}
    for name, method in (("auto", AUTO), ("one", ONE)):
        row |= {f"auroc_{name}": one.loc[method, "auroc"], f"fpr95_{name}": one.loc[method, "fpr95"]}
        for against in sets:
            row[f"regret_{name}_{against}"] = row[f"auroc_best_{against}"] - row[f"auroc_{name}"]
    return row


def print_choice(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Per network and OOD set: rank correlations, the best method in hindsight, `auto`, and its regret in points."""
    table = regret(frame)
    shown = table[["network", "ood"]].copy()
    shown["rank corr. paper"] = table["rank_paper"].map(number)
    shown["rank corr. all"] = table["rank_all"].map(number)
    shown["auto AUROC"] = [percent(value, digits) for value in table["auroc_auto"]]
    shown["auto FPR95"] = [percent(value, digits) for value in table["fpr95_auto"]]
    for against, best, gap in (("paper", "best of the paper", "regret"), ("all", "best of all", "regret to all")):
        values = [percent(value, digits) for value in table[f"auroc_best_{against}"]]
        shown[best] = [f"{name} {value}".strip() for name, value in zip(table[f"best_{against}"], values, strict=True)]
        shown[gap] = [percent(value, digits) for value in table[f"regret_auto_{against}"]]
    shown["regret of one"] = [percent(value, digits) for value in table["regret_one_paper"]]
    return shown.rename(columns={"ood": "OOD set"})


def draw_choice(frame: DataFrame) -> Figure:
    """A point per method: mean AUROC on the proxy sets and on real OOD sets; fused ones have a ring."""
    keys = ["method", "group", "proxy_auroc", "chosen"]
    means = frame.groupby(keys, sort=False, dropna=False)["auroc"].mean().reset_index()
    figure, (axes,) = panels(4.4)
    # the best lie near 100: a logarithm of what is missing keeps them apart
    points = [
        Point(str(row["method"]), missing(row["proxy_auroc"]), missing(row["auroc"]), bool(row["chosen"]))
        for row in means[means["group"].isin([PAPER, LATER])].to_dict("records")
    ]
    toward_hundred(axes, "x", "y")
    scatter(axes, points)
    fused = missing(float(means.loc[means["method"] == AUTO, "auroc"].iloc[0]))
    axes.axhline(fused, color=TEXT, linewidth=0.9, linestyle="--")
    axes.set_ylabel(f"real OOD sets: mean AUROC (%),\n{TOWARDS}")
    axes.set_xlabel(f"proxy OOD sets: mean AUROC (%),\n{TOWARDS}\nrings: fused in auto; dashed: auto; dotted: x = y")
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
