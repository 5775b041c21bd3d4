"""Compare the two bounds of OptFS: theta and f of each, and their AUROC at every K."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from oodshape.features.features import Features
from oodshape.methods.detector import Method
from oodshape.methods.shapes.optfs import Bound, OptFS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.methods.training import Training
from oodshape.report.palette import TEXT, WASH
from oodshape.studies.methods import measure
from oodshape.studies.network import Network
from oodshape.studies.plotting import add_legend, line_style, panels
from oodshape.studies.tables import format_percent
from oodshape.studies.theta import interval_columns

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

NUMBERS = (5, 10, 20, 50, 100, 200, 500)
SHOWN = 100  # intervals of the figure: the method's own
ROWS: dict[Bound, str] = {"theta": "optfs-e", "features": "optfs-f"}


def compare_bounds(network: Network, numbers: Sequence[int] = NUMBERS) -> DataFrame:
    """Return rows with `ood`: bound, k, fpr95 and auroc (k = 0 is Energy), and rows with `left`: a profile of theta.

    The profile has, for each bound and each of 100 intervals: left, right, density (per unit of z), impact (per image
    and unit of z), theta, and f = theta z at the middle. The column `signed` says whether features may be negative.
    """
    from pandas import DataFrame, concat

    train = network.train
    rows, profiles = measure(network, Method().fit(train), bound="none", k=0), []
    for bound in get_args(Bound):
        for k in numbers:
            rows += measure(network, Method(shape=OptFS(k=k, bound=bound)).fit(train), bound=bound, k=k)
        shape = OptFS(k=SHOWN, bound=bound).fit(Training.of(train))
        profiles.append(DataFrame({"bound": bound, **_profile(train, shape)}))
    return concat([DataFrame(rows), *profiles], ignore_index=True).assign(signed=train.stats.signed)


def _profile(train: Features, shape: PiecewiseConstant) -> dict[str, Any]:
    edges, stats = shape.edges.astype(np.float64), train.stats
    widths, middles = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    return {
        **interval_columns(edges),
        "density": stats.over(stats.counts, edges) / stats.total / widths,
        "impact": stats.impact(edges) / widths,
        "theta": shape.theta.astype(np.float64),
        "f": shape.theta * middles,
    }


def tabulate_bounds(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Return a row per network: Energy, AUROC / FPR95 of both bounds at K = 100, and AUROC at every other K."""
    from pandas import DataFrame

    rows = []
    for network, part in frame.groupby("network", sort=False):
        means = part.dropna(subset=["ood"]).groupby(["bound", "k"])[["auroc", "fpr95"]].mean()
        text = means.map(format_percent, digits=digits)
        pairs = text["auroc"] + " / " + text["fpr95"]
        row = {"network": str(network), "features": "signed" if part["signed"].iloc[0] else "not negative"}
        row |= {"energy": pairs["none", 0]} | {
            f"{name}, K = {SHOWN}": pairs[bound, SHOWN] for bound, name in ROWS.items()
        }
        others = [k for k in text.loc["theta"].index if k != SHOWN]
        rows.append(row | {f"K = {k:g}": " / ".join(text.loc[(bound, k), "auroc"] for bound in ROWS) for k in others})
    return DataFrame(rows)


def draw_bounds(frame: DataFrame) -> Figure:
    """Draw density and impact of the features, both thetas, both functions f, and the mean AUROC over K."""
    figure, (density, impact, theta, f, swept) = panels(6.4, 5, height_ratios=(0.8, 0.8, 1.1, 1.1, 1.1))
    profiles = frame.dropna(subset=["left"])
    one = profiles[profiles["bound"] == "theta"]
    z = (one["left"] + one["right"]) / 2
    density.fill_between(z, one["density"], color=WASH, step="mid")
    density.set(ylabel="density")
    impact.plot(z, one["impact"], color=TEXT)
    impact.set(ylabel="impact\nper unit of z")
    means = frame.dropna(subset=["ood"]).groupby(["bound", "k"], sort=False)["auroc"].mean()
    for bound, name in ROWS.items():
        part, look = profiles[profiles["bound"] == bound], line_style(name)
        theta.plot(z, part["theta"], label=f"{name}: bound on {bound}", **look)
        f.plot(z, part["f"], **look)
        values = means[bound]
        swept.plot(range(len(values)), 100 * values, "o", **look)
    ticks = [f"{k:g}" for k in means["theta"].index]
    swept.axhline(100 * means["none"].iloc[0], color=TEXT, linewidth=0.8, linestyle="--", label="energy")
    swept.set_xticks(range(len(ticks)), ticks)
    theta.set(ylabel="θ(z)")
    # near 0, theta of the bound on features can grow with K, while f does not: keep the rest of the curve readable
    low, high = np.quantile(profiles["theta"], [0.01, 0.99])
    theta.set_ylim(min(low, 0) - 0.15 * (high - low), high + 0.15 * (high - low))
    f.set(ylabel="f(z) = θ(z) z", xlabel="feature value z")
    swept.set(xlabel="number of intervals K; not to scale", ylabel="mean AUROC (%)")
    add_legend(figure, 2)
    return figure
