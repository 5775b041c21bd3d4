"""Measure how many images a fit needs: methods fitted on random subsets of the fitting set.

    python scripts/study_samples.py --features FOLDER ... [--methods optfs-e,react] [--resamples 5]

Writes samples.csv, .md, .tex and figures.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.images.identity import smallest
from oodshape.methods.detector import Detector
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.report.method_styles import display_name
from oodshape.studies.catalog import STUDIES, Study, write_study
from oodshape.studies.compare_methods import measure_sets, needs_features_only
from oodshape.studies.figures import AUROC
from oodshape.studies.load_networks import StudyNetwork, load_networks
from oodshape.studies.plotting import add_legend, line_style, network_panels
from oodshape.studies.tables import format_percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

SIZES = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000)
DEFAULT_METHODS = ("optfs-v", "optfs-e", "react", "mds++")
RESAMPLES = 10


def resample(network: StudyNetwork, resamples: int = RESAMPLES) -> DataFrame:
    """Return images, resample, method, theta, fpr95, auroc: each method fitted on `resamples` subsets of each size.

    fpr95 and auroc are means over the OOD sets. `theta` is the distance of OptFS's theta from that of the whole fitting
    set, |theta - whole| / |whole|, and NaN for other methods. Subsets are drawn without replacement by the identities
    of the images; those of the size of the whole set, with replacement (a bootstrap).
    """
    from pandas import DataFrame

    train = network.train
    methods = {name: method for name, method in network.methods.items() if needs_features_only(method)}
    whole = {name: method.fit(train) for name, method in methods.items()}
    rows: list[dict[str, Any]] = []
    for size in (*(size for size in SIZES if size < len(train)), len(train)):
        for number in range(resamples):
            subset = train[_draw(train, size, number)]
            for name, method in methods.items():
                try:
                    detector = method.fit(subset)
                except InputError:  # too few images for this method
                    continue
                means = DataFrame(measure_sets(network, detector))[["fpr95", "auroc"]].mean()
                columns = {"images": size, "resample": number, "method": name}
                rows.append({**columns, "theta": _measure_change(detector, whole[name]), **means})
    return DataFrame(rows)


def _draw(train: Features, size: int, seed: int) -> NDArray[np.int64]:
    if size == len(train):
        return np.random.default_rng(seed).integers(size, size=size)
    return np.asarray(smallest(train.identities, size, seed, "samples"))


def _measure_change(detector: Detector, whole: Detector) -> float:
    """Return the relative distance of two thetas at the middles of the intervals of `whole`; NaN without thetas."""
    if not isinstance(detector.shape, PiecewiseConstant) or not isinstance(whole.shape, PiecewiseConstant):
        return float("nan")
    edges = torch.from_numpy(np.array(whole.shape.edges, np.float32))
    z = ((edges[1:] + edges[:-1]) / 2)[None]
    one, two = (shape.scale(z, torch.ones_like(z)) for shape in (detector.shape, whole.shape))
    return float(torch.linalg.vector_norm(one - two) / torch.linalg.vector_norm(two))


def tabulate_samples(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Return per network and size: the AUROC of each method (mean ± standard deviation), and the change of theta."""
    from pandas import DataFrame

    rows = []
    for (network, images), part in frame.groupby(["network", "images"], sort=False):
        row = {"network": str(network), "images": str(images)}
        for name, one in part.groupby("method", sort=False):
            spread = one["auroc"].std() if len(one) > 1 else 0.0
            row[f"{name} AUROC"] = f"{format_percent(one['auroc'].mean(), digits)} ± {format_percent(spread, digits)}"
        change = part["theta"].dropna()
        row["change of theta"] = f"{change.mean():.3f}" if len(change) else ""
        rows.append(row)
    return DataFrame(rows).fillna("")


def draw_samples(frame: DataFrame) -> Figure:
    """Draw AUROC over the number of fitting images: the mean over resamples, and a band of one standard deviation."""
    figure, found = network_panels(frame, 2.0)
    for rows, (axes,) in found:
        for name, part in rows.groupby("method", sort=False):
            groups = part.groupby("images")["auroc"]
            mean, spread = 100 * groups.mean(), 100 * groups.std().fillna(0.0)
            style = line_style(str(name))
            axes.plot(mean.index, mean, "o", label=display_name(str(name)), **style)
            axes.fill_between(mean.index, mean - spread, mean + spread, color=style["color"], alpha=0.15, linewidth=0)
        axes.set(xscale="log", xlabel="images to fit on (logarithmic)")
    found[0][1][0].set_ylabel(f"mean {AUROC}")
    add_legend(figure, 4)
    return figure


def main() -> None:
    """Write the table and the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--features", type=Path, nargs="*", default=[])
    parser.add_argument("--methods", default=",".join(DEFAULT_METHODS))
    parser.add_argument("--resamples", type=int, default=RESAMPLES)
    parser.add_argument("--out", type=Path, default=Path("oodshape-results/studies"))
    told = parser.parse_args()
    title = "How many images a fit needs: AUROC over resamples of the fitting set, and the change of theta"
    STUDIES["samples"] = Study(title, partial(resample, resamples=told.resamples), tabulate_samples, draw_samples)
    methods = tuple(told.methods.split(","))
    networks = [each.with_options(methods=methods) for each in load_networks("digits", told.features)]
    for path in write_study("samples", networks, told.out):
        print(path)


if __name__ == "__main__":
    main()
