"""How many images does a fit need? Methods fitted on parts of the fitting set, drawn again and again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.images.identity import smallest
from oodshape.methods.detector import Detector, Method
from oodshape.methods.registry import METHODS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.studies.figures import AUROC
from oodshape.studies.methods import measured
from oodshape.studies.network import Network
from oodshape.studies.plotting import below, line_style, panels
from oodshape.studies.tables import percent

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

SIZES = (20, 50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000)
LOOKED_AT = ("optfs-v", "optfs-e", "react", "mds++")  # unless others are asked for
RESAMPLES = 10


def samples(
    train: Features,
    inside: Features,
    ood: Mapping[str, Features],
    methods: Mapping[str, Method] = METHODS,
    *,
    resamples: int = RESAMPLES,
    seed: int = 0,
) -> DataFrame:
    """images, resample, method, theta, fpr95, auroc: each method fitted on `resamples` parts of each size.

    fpr95 and auroc are means over the OOD sets. `theta` is how far OptFS's theta lies from that of the whole fitting
    set, |theta - whole| / |whole|, NaN for others. Parts are drawn without replacement by the images' identities; of
    the size of the whole set, with replacement (a bootstrap).
    """
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    sizes = [size for size in SIZES if size < len(train)]
    whole = {name: method.fit(train) for name, method in methods.items()}
    for size in (*sizes, len(train)):
        for place in range(resamples):
            part = train[_drawn(train, size, seed + place)]
            for name, method in methods.items():
                try:
                    detector = method.fit(part)
                except InputError:  # too few images for this method
                    continue
                found = measured(detector, inside, ood)
                figures = {each: float(np.mean([row[each] for row in found])) for each in ("fpr95", "auroc")}
                said = {"images": size, "resample": place, "method": name}
                rows.append({**said, "theta": _change(detector, whole[name]), **figures})
    return DataFrame(rows)


def of_network(network: Network) -> DataFrame:
    """The samples of a network: of the methods that were picked, or of a few."""
    found = network.compared if network.picked else {name: network.methods[name] for name in LOOKED_AT}
    methods = {name: method for name, method in found.items() if not method.wants_proxy and method.perturb.eps == 0}
    sets = network.train, network.inside, network.ood
    return samples(*sets, methods, seed=network.seed)


def _drawn(train: Features, size: int, seed: int) -> NDArray[np.int64]:
    if size == len(train):
        return np.random.default_rng(seed).integers(size, size=size)
    return np.asarray(smallest(train.identities, size, seed, "samples"))


def _change(detector: Detector, whole: Detector) -> float:
    """How far a theta lies from another, in the middles of that one's intervals; NaN where there is none."""
    if not isinstance(detector.shape, PiecewiseConstant) or not isinstance(whole.shape, PiecewiseConstant):
        return float("nan")
    edges = torch.from_numpy(np.array(whole.shape.edges, np.float32))
    z = ((edges[1:] + edges[:-1]) / 2)[None]
    one, two = (shape.scale(z, torch.ones_like(z)) for shape in (detector.shape, whole.shape))
    return float(torch.linalg.vector_norm(one - two) / torch.linalg.vector_norm(two))


def print_samples(frame: DataFrame, digits: int = 1) -> DataFrame:
    """Per network and size: each method's AUROC, mean and standard deviation over resamples, and theta's change."""
    from pandas import DataFrame

    rows = []
    for (network, images), part in frame.groupby(["network", "images"], sort=False):
        row = {"network": str(network), "images": str(images)}
        for name, one in part.groupby("method", sort=False):
            spread = one["auroc"].std() if len(one) > 1 else 0.0
            row[f"{name} AUROC"] = f"{percent(one['auroc'].mean(), digits)} ± {percent(spread, digits)}"
        change = part["theta"].dropna()
        row["change of theta"] = f"{change.mean():.3f}" if len(change) else ""
        rows.append(row)
    return DataFrame(rows).fillna("")


def draw_samples(frame: DataFrame) -> Figure:
    """AUROC over the number of fitting images, the mean over resamples with a band of one standard deviation."""
    figure, [axes] = panels(3.1)
    for name, part in frame.groupby("method", sort=False):
        groups = part.groupby("images")["auroc"]
        mean, spread = 100 * groups.mean(), 100 * groups.std().fillna(0.0)
        style = line_style(str(name))
        axes.plot(mean.index, mean, "o", label=name, **style)
        axes.fill_between(mean.index, mean - spread, mean + spread, color=style.get("color"), alpha=0.15, linewidth=0)
    axes.set_xscale("log")
    axes.set_xlabel("images to fit on (logarithmic)")
    axes.set_ylabel(f"mean {AUROC}")
    below(figure, 4)
    return figure
