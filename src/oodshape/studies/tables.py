"""From the tidy rows of a study to the table that is printed: strings, percent, a few columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from oodshape.methods.registry import METHODS
from oodshape.metrics.registry import DEFAULT_METRICS
from oodshape.studies.methods import generalisation

if TYPE_CHECKING:
    from pandas import DataFrame

METRICS = {metric.name: metric.head for metric in DEFAULT_METRICS}
ANGLES = ("degrees", "turned")
_NAMES = {
    "norm_ratio": "length b / a",
    "cosine": "cos(a, b)",
    "auroc_with": "AUROC with OOD data",
    "auroc_without": "AUROC ID only",
    "x": "b along a",
    "orthogonal": "b across a",
    "degrees": "angle of a, b",
    "turned": "angle of a, a - b",
}


def decimals(images: int) -> int:
    """How many decimals of a percentage so many images support: one image moves the last one by 1 at most.

    >>> [decimals(images) for images in (40, 999, 1000, 9999, 10_000, 50_000)]
    [0, 0, 1, 1, 2, 2]
    """
    return min(max(len(str(images)) - 3, 0), 2)


def percent(value: float, digits: int = 1) -> str:
    """A fraction in percent with so many decimals, nothing for NaN, without a minus before zeros.

    >>> percent(0.12345), percent(0.12345, 2), percent(-0.0001), percent(float("nan"))
    ('12.3', '12.35', '0.0', '')
    """
    return "" if np.isnan(value) else rounded(100 * value, digits)


def rounded(value: float, digits: int) -> str:
    """A number with so many decimals, without a minus before zeros."""
    text = f"{value:.{digits}f}"
    return text.removeprefix("-") if float(text) == 0 else text


def number(value: float) -> str:
    """A number with three decimals."""
    return rounded(value, 3)


def by_network(frame: DataFrame, index: list[str], digits: int = 1, also: Sequence[str] = ()) -> DataFrame:
    """A row per setting, columns FPR95 and AUROC per network: means over OOD sets; `also` are numbers per network."""
    from pandas import DataFrame

    networks = list(dict.fromkeys(frame["network"]))
    means = frame.groupby(["network", *index], sort=False)[[*also, *METRICS]].mean()
    keys = list(dict.fromkeys(frame[index].itertuples(index=False, name=None)))
    rows = []
    for key in keys:
        row = {name: _plain(part) for name, part in zip(index, key, strict=True)}
        for network in networks:
            short = "" if len(networks) == 1 else f"{network} "
            found = means.loc[(network, *key)] if (network, *key) in means.index else None
            for name in also:
                row[f"{short}{name}"] = "" if found is None else number(float(found[name]))
            for name, title in METRICS.items():
                row[f"{short}{title}"] = "" if found is None else percent(float(found[name]), digits)
        rows.append(row)
    return DataFrame(rows)


def _plain(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def listed(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Every row as it is: AUROC in percent, angles with one decimal, other numbers with three."""
    shown = frame.drop(columns=["family", "y"], errors="ignore").copy()
    for name in shown.columns:
        if shown[name].dtype.kind == "f":
            shown[name] = [_entry(name, value, digits) for value in shown[name]]
    return shown.rename(columns=_NAMES)


def _entry(name: str, value: float, digits: int) -> str:
    if name.startswith("auroc"):
        return percent(value, digits)
    return rounded(value, 1) if name in ANGLES else number(value)


def print_changed(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Per network: r without and with bias, images, and the cosine of the fixed and the dynamic theta."""
    from pandas import DataFrame

    rows = []
    for network, part in frame.groupby("network", sort=False):
        thetas = [curve["theta"].to_numpy(float) for _, curve in part.groupby("curve", sort=False)]
        first = part.iloc[0]
        rows.append(
            {
                "network": network,
                "r without bias": percent(first["without_bias"], digits),
                "r with bias": percent(first["with_bias"], digits),
                "images": f"{first['n']}",
                "cos(fixed, dynamic)": f"{cosine(*thetas):.5f}",
            }
        )
    return DataFrame(rows)


def print_shaping(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Per network and curve: the cosine of its theta with that of OptFS with OOD data."""
    from pandas import DataFrame

    rows = [
        {"network": network, **{name: number(value) for name, value in curves.items()}}
        for network, curves in likeness(frame).items()
    ]
    return DataFrame(rows).fillna("")


def likeness(frame: DataFrame) -> dict[str, dict[str, float]]:
    """By network and curve: the cosine of its theta with that of OptFS with OOD data, where values lie."""
    found: dict[str, dict[str, float]] = {}
    for network, part in frame.groupby("network", sort=False):
        curves = {str(name): curve for name, curve in part.groupby("curve", sort=False)}
        best = curves.pop("optfs with OOD")["theta"].to_numpy()
        here = found.setdefault(str(network), {})
        for name, curve in curves.items():
            theta = curve["theta"].to_numpy()
            known = np.isfinite(theta) & (curve["count"].to_numpy() > 0)
            here[name] = cosine(best[known], theta[known])
    return found


def print_weights(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Per network, set and tenth of the range: the number of values, mean and standard deviation of w_max."""
    rows = frame.copy()
    limits = rows.groupby("network")[["left", "right"]].agg({"left": "min", "right": "max"})
    low, high = rows["network"].map(limits["left"]), rows["network"].map(limits["right"])
    rows["part"] = ((rows["left"] + rows["right"]) / 2 - low).div(high - low).mul(10).astype(int).clip(0, 9)
    rows["total"] = (rows["mean"] * rows["count"]).fillna(0)
    rows["squares"] = ((rows["std"] ** 2 + rows["mean"] ** 2) * rows["count"]).fillna(0)
    groups = rows.groupby(["network", "part", "set"], sort=False)
    sums = groups[["count", "total", "squares"]].sum().join(groups.agg({"left": "min", "right": "max"})).reset_index()
    mean = sums["total"] / sums["count"]
    std = np.sqrt((sums["squares"] / sums["count"] - mean**2).clip(lower=0))
    sums["z"] = [
        f"{a:.2f} to {b:.2f}".replace("-0.00", "0.00") for a, b in zip(sums["left"], sums["right"], strict=True)
    ]
    sums["values"] = sums["count"].map(lambda n: f"{n:.0f}")
    sums["weight"] = [f"{m:.4f} ± {s:.4f}" if np.isfinite(m) else "" for m, s in zip(mean, std, strict=True)]
    sums["set"] = sums["set"].str.partition(" ")[0]
    wide = sums.pivot(index=["network", "part", "z"], columns="set", values=["values", "weight"]).reset_index()
    wide.columns = [f"{column[1]} {column[0]}".strip() for column in wide.columns.to_flat_index()]
    return wide.drop(columns="part").fillna("")


def print_generalisation(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Per method: the mean AUROC on each network, on ConvNets and on the others."""
    means = frame.groupby(["method", "network"], sort=False)["auroc"].mean().unstack("network")
    groups = generalisation(frame.rename(columns={"network": "model"})).set_index("method")
    table = means.join(groups.rename(columns={"convnets": "ConvNets", "others": "transformers and MLPs"}))
    table = table.loc[
        sorted(table.index, key=lambda name: list(METHODS).index(name) if name in METHODS else len(METHODS))
    ]
    return table.map(lambda value: percent(value, digits)).rename_axis("method").reset_index()


def print_tuning(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Per network and method: settings and mean FPR95 and AUROC as given and tuned."""
    keys = ["network", "method", "tuned", "setting", "surrogate_auroc"]
    means = frame.groupby(keys, sort=False, dropna=False)[list(METRICS)].mean().reset_index()
    means["tuned"] = means["tuned"].map({False: "as given", True: "tuned"})
    for name in ("surrogate_auroc", *METRICS):
        means[name] = [percent(value, digits) for value in means[name]]
    return means.rename(columns={"surrogate_auroc": "AUROC on surrogates", **METRICS})


def cosine(a: Any, b: Any) -> float:
    """The cosine of the angle between two vectors."""
    return float(a @ b / (np.linalg.norm(a) * np.linalg.norm(b)))
