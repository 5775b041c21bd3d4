"""The two bounds of OptFS side by side: what each makes of theta and f, and what it is worth at every K."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from oodshape.features.features import Features
from oodshape.methods.detector import Method
from oodshape.methods.shapes.optfs import Bound, OptFS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.report.palette import TEXT, WASH
from oodshape.studies.methods import measure
from oodshape.studies.plotting import add_legend, line_style, panels
from oodshape.studies.tables import format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

NUMBERS = (5, 10, 20, 50, 100, 200, 500)
SHOWN = 100  # intervals of the figure: the method's own
ROWS: dict[Bound, str] = {"theta": "optfs-e", "features": "optfs-f"}


def bounds(
    train: Features, inside: Features, ood: Mapping[str, Features], numbers: Sequence[int] = NUMBERS
) -> DataFrame:
    """Rows of two kinds. With `ood`: bound, k, fpr95, auroc, K = 0 being Energy; with `left`: a profile of theta.

    The profile has, for each of 100 intervals: left, right, density (per unit of z), impact (per image and unit of
    z), and by bound theta and f = theta z at the middle. Both kinds say whether the features are `signed`.
    """
    from pandas import DataFrame

    rows: list[dict[str, Any]] = measure(Method().fit(train), inside, ood, bound="none", k=0)
    for bound in get_args(Bound):
        for k in numbers:
            rows += measure(Method(shape=OptFS(k=k, bound=bound)).fit(train), inside, ood, bound=bound, k=k)
        shape = Method(shape=OptFS(k=SHOWN, bound=bound)).fit(train).shape
        assert isinstance(shape, PiecewiseConstant)
        rows += _profile(train, shape, bound)
    return DataFrame(rows).assign(signed=train.stats.signed)


def _profile(train: Features, shape: PiecewiseConstant, bound: str) -> list[dict[str, Any]]:
    edges, stats = shape.edges.astype(np.float64), train.stats
    widths, middles = np.diff(edges), (edges[1:] + edges[:-1]) / 2
    columns = {
        "left": edges[:-1],
        "right": edges[1:],
        "density": stats.over("counts", edges) / stats.total / widths,
        "impact": stats.impact(edges) / widths,
        "theta": shape.theta.astype(np.float64),
        "f": shape.theta * middles,
    }
    names = list(columns)
    return [{"bound": bound, **dict(zip(names, row, strict=True))} for row in zip(*columns.values(), strict=True)]


def print_bounds(frame: DataFrame, digits: int = 1) -> DataFrame:
    """A row per network: Energy, and AUROC and FPR95 of both bounds at K = 100; then AUROC at every other K."""
    from pandas import DataFrame

    rows = []
    for network, part in frame.groupby("network", sort=False):
        tested = part.dropna(subset=["ood"])
        said: dict[tuple[str, int], tuple[str, str]] = {}
        for bound in ("none", *ROWS):
            means = tested[tested["bound"] == bound].groupby("k", sort=False)[["auroc", "fpr95"]].mean().reset_index()
            for k, auroc, fpr95 in means.itertuples(index=False, name=None):
                said[bound, int(k)] = (format_percent(auroc, digits), format_percent(fpr95, digits))
        row = {"network": str(network), "features": "signed" if part["signed"].iloc[0] else "not negative"}
        row["energy"] = " / ".join(said["none", 0])
        here = {bound: name for bound, name in ROWS.items() if (bound, SHOWN) in said}
        row |= {f"{name}, K = {SHOWN}": " / ".join(said[bound, SHOWN]) for bound, name in here.items()}
        others = sorted({k for _, k in said} - {0, SHOWN})
        rows.append(row | {f"K = {k}": " / ".join(said[bound, k][0] for bound in here) for k in others})
    return DataFrame(rows)


def draw_bounds(frame: DataFrame) -> Figure:
    """Density and impact of the features, both thetas, both functions f, and the mean AUROC over K."""
    figure, (density, impact, theta, f, swept) = panels(6.4, 5, height_ratios=(0.8, 0.8, 1.1, 1.1, 1.1))
    profiles = frame.dropna(subset=["left"])
    one = profiles[profiles["bound"] == profiles["bound"].iloc[0]]
    z = (one["left"] + one["right"]) / 2
    density.fill_between(z, one["density"], color=WASH, step="mid")
    density.set(ylabel="density")
    impact.plot(z, one["impact"], color=TEXT)
    impact.set(ylabel="impact\nper unit of z")
    means = frame.dropna(subset=["ood"]).groupby(["bound", "k"], sort=False)["auroc"].mean()
    for bound, name in ROWS.items():
        if bound not in set(profiles["bound"]):  # was not picked
            continue
        part, look = profiles[profiles["bound"] == bound], line_style(name)
        theta.plot(z, part["theta"], label=f"{name}: bound on {bound}", **look)
        f.plot(z, part["f"], **look)
        values = means[bound]
        swept.plot(range(len(values)), 100 * values, "o", **look)
    ticks = [f"{k:g}" for k in means[profiles["bound"].iloc[0]].index]
    swept.axhline(100 * means["none"].iloc[0], color=TEXT, linewidth=0.8, linestyle="--", label="energy")
    swept.set_xticks(range(len(ticks)), ticks)
    theta.set(ylabel="θ(z)")
    # beside 0 theta of the bound on features can grow with K, and f does not: keep the rest of the curve readable
    low, high = np.quantile(profiles["theta"], [0.01, 0.99])
    theta.set_ylim(min(low, 0) - 0.15 * (high - low), high + 0.15 * (high - low))
    f.set(ylabel="f(z) = θ(z) z", xlabel="feature value z")
    swept.set(xlabel="number of intervals K; not to scale", ylabel="mean AUROC (%)")
    add_legend(figure, 2)
    return figure
