"""The AUROC of each method against proxy OOD sets and against real OOD data, and the selection of `auto`.

    python scripts/study_auto.py                        # the embedded digits
    python scripts/study_auto.py --features FOLDER ...  # folders of feature files, each with scrambled.npz

Writes auto.csv, .md, .tex and figures.
"""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from scatter import Point, draw_scatter, name_points

from oodshape.core.errors import InputError
from oodshape.methods.auto import Auto, split_selection, try_on_proxies
from oodshape.methods.detector import Method
from oodshape.methods.fit_all import fit_all
from oodshape.methods.fusion import SCRAMBLED, Fusion
from oodshape.methods.records import RECORDS
from oodshape.report.palette import PALE, TEXT
from oodshape.studies import plotting
from oodshape.studies.catalog import STUDIES, Study, write_study
from oodshape.studies.compare_methods import measure_sets, needs_features_only
from oodshape.studies.load_networks import StudyNetwork, load_networks
from oodshape.studies.tables import format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

DEFAULT = Auto()
PAPER, LATER, AUTO, ONE = "paper", "newer", "auto", "auto, best one"
# well-known fixed choices, drawn next to `auto`
LOOKS: dict[str, dict[str, Any]] = {
    **{name: {"marker": "o"} for name in ("msp", "energy", "ash-s", "optfs-e")},
    ONE: {"marker": "D", "fillstyle": "none", "color": TEXT, "markersize": 5.5},
    AUTO: {"marker": "D", "color": TEXT, "markersize": 5.5},
}


def compare_selection(network: StudyNetwork, auto: Auto = DEFAULT) -> DataFrame:
    """Return method, group, proxy_auroc, chosen, ood, fpr95, auroc of every method on features, and of `auto`.

    `proxy_auroc` is the criterion of `auto`: with the method fitted on a part of the training set, the mean AUROC over
    the proxy sets; `scrambled_auroc` is that on scrambled images alone. The other figures are those of the method
    fitted on the whole training set, of `auto` with its fusion (group auto), and of the best-ranked candidate alone.
    """
    from pandas import DataFrame

    train, proxy = network.train, network.proxy
    if not proxy:
        raise InputError(f"{network.name} has no scrambled.npz, the features of scrambled ID images, in its folder")
    methods = {name: method for name, method in network.methods.items() if needs_features_only(method)}
    candidates = {name: method.unlabelled() for name, method in methods.items()}
    tried = try_on_proxies(candidates, *split_selection(train, auto.share), proxy)
    means = dict(tried.ranking)
    criteria = {name: {"proxy_auroc": means.get(name, np.nan), "scrambled_auroc": np.nan} for name in methods}
    for name, values in tried.aurocs.items():
        criteria[name]["scrambled_auroc"] = dict(zip(tried.proxies, values, strict=True)).get(SCRAMBLED, np.nan)
    fused = Method(score=auto).fit(train, proxy=proxy)
    best = Method(score=replace(auto, fuse=1)).fit(train, proxy=proxy)
    assert isinstance(fused.scorer, Fusion)
    chosen = {component.name for component in fused.scorer.components}
    rows: list[dict[str, Any]] = []
    for name, detector in fit_all(methods, train).items():
        group = LATER if name in RECORDS and RECORDS[name].block == "later" else PAPER
        rows += measure_sets(network, detector, method=name, group=group, **criteria[name], chosen=name in chosen)
    for name, detector in ((AUTO, fused), (ONE, best)):
        rows += measure_sets(network, detector, method=name, group=name, proxy_auroc=np.nan, chosen=False)
    return DataFrame(rows)


def compute_regret(frame: DataFrame) -> DataFrame:
    """Return a row per network and OOD set, and one for their mean: rank correlations, and the regret of `auto`.

    Takes the columns of `compare_selection` and `network`. `rank_paper` and `rank_all` are Spearman's correlation of
    `proxy_auroc` and `auroc` over the paper's methods and over all methods; `best_paper` and `best_all` the best single
    method in hindsight. A regret is the AUROC of that method minus that of `auto`, below 0 if `auto` is better.
    """
    from pandas import DataFrame

    rows = []
    for network, part in frame.groupby("network", sort=False):
        keys = ["method", "group", "proxy_auroc"]
        mean = part.groupby(keys, sort=False, dropna=False)[["fpr95", "auroc"]].mean().reset_index()
        for name, one in (*part.groupby("ood", sort=False), ("mean", mean)):
            rows.append({"network": network, "ood": name} | _compute_row(one.set_index("method")))
    return DataFrame(rows)


def _compute_row(one: DataFrame) -> dict[str, Any]:
    """Return the figures of one OOD set; the index holds the methods."""
    row: dict[str, Any] = {"auroc_auto": one.loc[AUTO, "auroc"], "fpr95_auto": one.loc[AUTO, "fpr95"]}
    for name, groups in {"paper": [PAPER], "all": [PAPER, LATER]}.items():
        part = one[one["group"].isin(groups)]
        best = part["auroc"].max()
        row |= {
            f"rank_{name}": part["proxy_auroc"].rank().corr(part["auroc"].rank()),
            f"best_{name}": part["auroc"].idxmax() if len(part) else "",  # none of --methods may be in the group
            f"auroc_best_{name}": best,
            f"regret_auto_{name}": best - row["auroc_auto"],
            f"regret_one_{name}": best - one.loc[ONE, "auroc"],
        }
    return row


def tabulate_selection(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Return per network and OOD set: rank correlations, the best method in hindsight, `auto`, and its regret."""
    table = compute_regret(frame)
    ranks = table[["rank_paper", "rank_all"]].map("{:z.3f}".format)
    numbers = table.columns[table.columns.str.match("auroc|fpr95|regret")]
    text = table[numbers].map(format_percent, digits=digits)
    columns = {
        "network": table["network"],
        "OOD set": table["ood"],
        "rank corr. paper": ranks["rank_paper"],
        "rank corr. all": ranks["rank_all"],
        "auto AUROC": text["auroc_auto"],
        "auto FPR95": text["fpr95_auto"],
        "best of the paper": (table["best_paper"] + " " + text["auroc_best_paper"]).str.strip(),
        "regret": text["regret_auto_paper"],
        "best of all": (table["best_all"] + " " + text["auroc_best_all"]).str.strip(),
        "regret to all": text["regret_auto_all"],
        "regret of one": text["regret_one_paper"],
    }
    return table[[]].assign(**columns)


def draw_selection(frame: DataFrame) -> Figure:
    """Draw a point per method: mean AUROC against the proxy and the real OOD sets; selected methods have a ring."""
    keys = ["method", "group", "proxy_auroc", "chosen"]
    figure, found = plotting.network_panels(frame, 3.4, shared="")
    named = []
    for part, (axes,) in found:
        means = part.groupby(keys, sort=False, dropna=False)["auroc"].mean().reset_index()
        points = [
            Point(
                str(row["method"]),
                plotting.missing_percent(row["proxy_auroc"]),
                plotting.missing_percent(row["auroc"]),
                bool(row["chosen"]),
            )
            for row in means[means["group"].isin([PAPER, LATER])].to_dict("records")
        ]
        plotting.scale_toward_hundred(axes)
        draw_scatter(axes, points)
        fused = plotting.missing_percent(float(means.loc[means["method"] == AUTO, "auroc"].iloc[0]))
        axes.axhline(fused, color=TEXT, linewidth=0.9, linestyle="--")
        marks = "rings: fused in auto; dashed: auto; dotted: x = y"
        axes.set(xlabel=f"proxy OOD sets: mean AUROC (%)\\n{marks}", ylabel="real OOD sets: mean AUROC (%)")
        named.append((axes, points))
    plotting.add_legend(figure, 2 if len(named) == 1 else 3)
    for axes, points in named:
        name_points(axes, points)
    return figure


def draw_regret(frame: DataFrame) -> Figure:
    """Draw a line per network: mean AUROC of `auto` and of fixed choices, minus that of the best paper method."""
    means = frame.groupby(["network", "method", "group"], sort=False)["auroc"].mean().reset_index()
    names = list(dict.fromkeys(means["network"]))
    figure, (axes,) = plotting.create_panels(1.1 + 0.25 * len(names))
    axes.axvline(0.0, color=TEXT, linewidth=0.6)
    for place, network in enumerate(names):
        part = means[means["network"] == network].set_index("method")
        best = part.loc[part["group"] == PAPER, "auroc"].max()
        for name, shape in LOOKS.items():
            if name in part.index:
                look = {"color": plotting.line_style(name)["color"], "label": name if place == 0 else None} | shape
                axes.plot([100 * (part.loc[name, "auroc"] - best)], [place], linestyle="none", **look)
        axes.axhline(place, color=PALE, linewidth=0.3, zorder=0)
    plotting.label_rows(axes, names)
    axes.set(xlabel="mean AUROC (%) minus that of\nthe best paper method", ylabel="network")
    plotting.add_legend(figure, 3)
    return figure


def main() -> None:
    """Write the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path, default=Path("oodshape-results/studies"))
    told = parser.parse_args()
    title = (
        "The selection of auto: AUROC against proxy OOD sets (scrambled ID images, held-out classes) and real OOD data"
    )
    STUDIES["auto"] = Study(title, compare_selection, tabulate_selection, draw_selection, draw_regret)
    for path in write_study("auto", load_networks("digits", told.features), told.out):
        print(path)


if __name__ == "__main__":
    main()
