"""Turn the tidy rows of a study into the table that is printed: text, percentages, a few columns."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from pandas import DataFrame

from oodshape.methods.registry import METHODS
from oodshape.metrics.registry import DEFAULT_METRICS
from oodshape.report.tables.paper import STUDIES
from oodshape.studies.compare_methods import average_by_family
from oodshape.studies.shaping_functions import mean_std
from oodshape.studies.theta import cosine

METRICS = {metric.name: metric.head for metric in DEFAULT_METRICS}
ANGLES = ("degrees", "turned")
_TITLES = {
    **{name: measure[0] for name, measure in STUDIES["validation"].measures.items()},
    "x": "b along a",
    "orthogonal": "b across a",
    "degrees": "angle of a, b",
    "turned": "angle of a, a - b",
}


def supported_decimals(images: int) -> int:
    """Return how many decimals of a percentage this number of images supports: one image changes the last by 1 at most.

    >>> [supported_decimals(images) for images in (40, 999, 1000, 9999, 10_000, 50_000)]
    [0, 0, 1, 1, 2, 2]
    """
    return min(max(len(str(images)) - 3, 0), 2)


def format_percent(value: float, digits: int = 1) -> str:
    """Format a fraction in percent; NaN becomes empty, and zeros have no minus sign.

    >>> format_percent(0.12345), format_percent(0.12345, 2), format_percent(-0.0001), format_percent(float("nan"))
    ('12.3', '12.35', '0.0', '')
    """
    return "" if np.isnan(value) else f"{100 * value:z.{digits}f}"


def tabulate_means(frame: DataFrame, digits: int = 1, *, index: list[str], also: Sequence[str] = ()) -> DataFrame:
    """Return a row per setting with FPR95 and AUROC per network, means over OOD sets; `also` are more numbers."""
    networks = list(frame["network"].unique())
    rows = []
    for key, part in frame.groupby(index, sort=False):
        texts = (f"{value:g}" if isinstance(value, float) else str(value) for value in key)
        row = dict(zip(index, texts, strict=True))
        for network, one in part.groupby("network", sort=False):
            prefix = "" if len(networks) == 1 else f"{network} "
            row |= {f"{prefix}{name}": f"{one[name].mean():z.3f}" for name in also}
            row |= {f"{prefix}{title}": format_percent(one[name].mean(), digits) for name, title in METRICS.items()}
        rows.append(row)
    return DataFrame(rows).fillna("")


def tabulate_rows(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Return every row: AUROC in percent, angles with one decimal, other numbers with three."""
    table = frame.drop(columns=["family", "y"], errors="ignore")
    for name in map(str, table.select_dtypes("float")):
        is_auroc, decimals = name.startswith("auroc"), 1 if name in ANGLES else 3
        table[name] = [format_percent(v, digits) if is_auroc else f"{v:z.{decimals}f}" for v in table[name]]
    return table.rename(columns=_TITLES)


def tabulate_dynamic(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Return per network: r without and with bias, images, and the cosine of the fixed and the dynamic theta."""
    rows = []
    for network, part in frame.groupby("network", sort=False):
        thetas = [curve["theta"].to_numpy(float) for _, curve in part.groupby("curve", sort=False)]
        first = part.iloc[0]
        ratios = (format_percent(first[name], digits) for name in ("without_bias", "with_bias"))
        rows.append((network, *ratios, f"{first['n']}", f"{cosine(*thetas):.5f}"))
    return DataFrame(rows, columns=["network", "r without bias", "r with bias", "images", "cos(fixed, dynamic)"])


def tabulate_shaping(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Return per network and curve: the cosine of its theta with that of OptFS with OOD data."""
    rows = []
    for network, part in frame.groupby("network", sort=False):
        curves = {str(name): curve for name, curve in part.groupby("curve", sort=False)}
        best, row = curves.pop("optfs with OOD")["theta"].to_numpy(), {"network": str(network)}
        for name, curve in curves.items():
            theta = curve["theta"].to_numpy()
            known = np.isfinite(theta) & (curve["count"].to_numpy() > 0)
            row[name] = f"{cosine(best[known], theta[known]):z.3f}"
        rows.append(row)
    return DataFrame(rows).fillna("")


def tabulate_weights(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Return per network, set and tenth of the range: the number of values, mean and standard deviation of w_max."""
    rows = frame.copy()
    sizes = rows.groupby(["network", "set"])["left"]
    rows["part"] = 10 * sizes.cumcount() // sizes.transform("size")  # the intervals are equally wide
    rows["total"] = (rows["mean"] * rows["count"]).fillna(0)
    rows["squares"] = ((rows["std"] ** 2 + rows["mean"] ** 2) * rows["count"]).fillna(0)
    groups = rows.groupby(["network", "part", "set"], sort=False)
    sums = groups[["count", "total", "squares"]].sum().join(groups.agg({"left": "min", "right": "max"})).reset_index()
    mean, std = mean_std(sums["count"].to_numpy(), sums["total"].to_numpy(), sums["squares"].to_numpy())
    sums["z"] = [f"{a:z.2f} to {b:z.2f}" for a, b in zip(sums["left"], sums["right"], strict=True)]
    sums["values"] = sums["count"].map("{:.0f}".format)
    sums["weight"] = [f"{m:.4f} ± {s:.4f}" if np.isfinite(m) else "" for m, s in zip(mean, std, strict=True)]
    sums["set"] = sums["set"].str.partition(" ")[0]
    wide = sums.pivot(index=["network", "part", "z"], columns="set", values=["values", "weight"]).reset_index()
    wide.columns = [f"{column[1]} {column[0]}".strip() for column in wide.columns.to_flat_index()]
    return wide.drop(columns="part").fillna("")


def tabulate_generalisation(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Return per method: the mean AUROC on each network and on each family."""
    means = frame.groupby(["method", "network"], sort=False)["auroc"].mean().unstack("network")
    groups = average_by_family(frame).set_index("method").dropna(axis=1, how="all")
    table = means.join(groups.add_prefix("all "))
    order = list(METHODS)
    table = table.loc[sorted(table.index, key=lambda name: order.index(name) if name in METHODS else len(order))]
    return table.map(format_percent, digits=digits).rename_axis("method").reset_index()
