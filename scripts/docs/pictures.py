"""What the docs show of a network: the three pictures of the idea, and two figures per method."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch

from lean import svg
from oodshape.features.feature_stats import FeatureStats
from oodshape.features.features import Features
from oodshape.methods.detector import Detector
from oodshape.methods.registry import METHODS
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.slots import Shape
from oodshape.methods.training_set import Training
from oodshape.metrics.detection import auroc
from oodshape.report.method_styles import method_family
from oodshape.report.palette import ID_COLOR, OOD_COLOR, TEXT
from oodshape.studies.plotting import line_style
from oodshape.studies.shaping_functions import profile_intervals

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from oodshape.studies.load_networks import StudyNetwork

FEWEST = 20  # values in an interval that give a mean
POINTS, BINS = 200, 40  # of a curve, and of a histogram


def outside(network: StudyNetwork) -> dict[str, Features]:
    """Every OOD set, noise among them."""
    return {**network.ood, **network.surrogates}


def only(network: StudyNetwork, ood: str) -> StudyNetwork:
    """The network with one OOD set alone."""
    return replace(network, ood={ood: network.ood[ood]}, surrogates={})


def scores(detector: Detector, network: StudyNetwork) -> tuple[Any, Any]:
    """(ID scores, scores of all OOD sets together)."""
    return detector.score(network.id_test), torch.cat([detector.score(ood) for ood in outside(network).values()])


class ThetaCurve(NamedTuple):
    """Points (z, theta(z)) of the shaping function of a method."""

    method: str
    z: tuple[float, ...]
    theta: tuple[float, ...]


def theta_of(name: str, shape: Shape, network: StudyNetwork) -> ThetaCurve:
    """theta(z): itself where it is a function of one value, else its mean in each of OptFS's intervals."""
    edges = OptFS().fit(Training.of(network.train)).edges
    z = torch.linspace(float(edges[0]), float(edges[-1]), POINTS)
    z = z[z != 0]  # f(0) = 0 says nothing about theta there
    row, column = z[None, :], z[:, None]
    if shape.pointwise:
        theta = shape.scale(row, torch.ones_like(row))[0]
        if torch.equal(theta, shape.scale(column, torch.ones_like(column))[:, 0]):
            return ThetaCurve(name, _short(z.tolist()), _short(theta.tolist()))
    count, mean, _ = profile_intervals(shape, [network.id_test, *outside(network).values()], edges)
    known = count > FEWEST
    middle = (edges[:-1].astype(np.float64) + edges[1:])[known] / 2
    return ThetaCurve(name, _short(middle), _short(mean[known]))


def _short(values: Any) -> tuple[float, ...]:
    return tuple(float(f"{value:.5g}") for value in values)


def histogram(name: str, pair: tuple[Any, Any], threshold: float | None = None) -> str:
    """An SVG of ID and OOD scores."""
    return svg(
        (4.2, 2.1),
        f"Histogram of {name} scores of ID and OOD images",
        lambda axes: _histogram(axes, name, pair, threshold),
    )


def _histogram(axes: Axes, name: str, pair: tuple[Any, Any], threshold: float | None = None) -> None:
    inside, outside = (np.asarray(part, np.float64) for part in pair)
    low, high = (pick(np.quantile(part, q) for part in (inside, outside)) for pick, q in ((min, 0.005), (max, 0.995)))
    edges = np.linspace(low, high, BINS + 1)
    for part, color, label in ((inside, ID_COLOR, "ID"), (outside, OOD_COLOR, "OOD")):
        heights = np.histogram(part.clip(low, high), edges)[0] / len(part)
        axes.stairs(heights, edges, fill=True, color=color, alpha=0.35, label=label)
        axes.stairs(heights, edges, color=color, linewidth=1.2)
    if threshold is not None:
        axes.axvline(threshold, color=TEXT, linewidth=1.2, linestyle="--", label="threshold")
    axes.set(xlabel="score", ylabel="fraction of images", yticks=[])
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", nbins=5)
    axes.legend(handlelength=1.2, loc="upper left", bbox_to_anchor=(1.0, 1.0), borderaxespad=0.0)


def shaping(curves: Sequence[ThetaCurve]) -> str:
    """An SVG of theta(z) of some methods."""
    names = ", ".join(curve.method for curve in curves)
    height = 2.4 if len(curves) == 1 else 3.0
    return svg((4.2, height), f"Shaping function of {names}", lambda axes: _shaping(axes, curves))


def _shaping(axes: Axes, curves: Sequence[ThetaCurve]) -> None:
    axes.axhline(1.0, color=TEXT, linewidth=0.8, linestyle=":")
    axes.axhline(0.0, color=TEXT, linewidth=0.5)
    for curve in curves:
        look = line_style(curve.method) | (
            {"linestyle": "-"} if len(curves) == 1 or method_family(curve.method) == "optfs" else {}
        )
        axes.plot(curve.z, curve.theta, label=curve.method, **look)
    axes.set(xlabel="feature value z", ylabel="θ(z) = f(z) / z")
    axes.margins(x=0)
    if len(curves) > 1:
        axes.legend()


def impacts(network: StudyNetwork, edges: Any) -> Mapping[str, Any]:
    """[K] by name: the mean impact on the max logit of the features in each interval, of ID and of OOD images."""
    outer = FeatureStats.of(next(iter(outside(network).values())))
    for features in list(outside(network).values())[1:]:
        outer = outer + FeatureStats.of(features)
    return {"ID": FeatureStats.of(network.id_test).impact(edges), "OOD": outer.impact(edges)}


def idea(network: StudyNetwork) -> dict[str, str]:
    """The three figures by name, the last in two parts."""
    network = only(network, "textures")
    edges = OptFS(k=40).fit(Training.of(network.train)).edges
    fitted = {name: METHODS[name].fit(network.train) for name in ("energy", "react", "bfact", "vra-p", "optfs-e")}
    curves = [theta_of(name, detector.shape, network) for name, detector in fitted.items() if name != "energy"]

    def paint_impacts(axes: Axes) -> None:
        axes.axhline(0.0, color=TEXT, linewidth=0.5)
        for (name, impact), color in zip(impacts(network, edges).items(), (ID_COLOR, OOD_COLOR), strict=True):
            axes.stairs(impact, edges, fill=True, color=color, alpha=0.15)
            axes.stairs(impact, edges, color=color, linewidth=1.6, label=name)
        axes.set(xlabel="feature value z", ylabel="impact on the max logit")
        axes.margins(x=0)
        axes.legend()

    def paint_scores(axes: Axes, name: str) -> None:
        pair = scores(fitted[name], network)
        _histogram(axes, name, pair, fitted[name].calibrate(pair[0], alpha=0.05).threshold)
        axes.set_title(f"{name}: AUROC {100 * auroc(*pair):.1f} %")

    before, after = partial(paint_scores, name="energy"), partial(paint_scores, name="optfs-e")
    return {
        "idea-impact": svg((5.2, 2.8), "Mean impact on the max logit by feature value, ID and OOD", paint_impacts),
        "idea-shapes": shaping(curves),
        "idea-before": svg((4.2, 2.4), "Scores without shaping, with the threshold", before),
        "idea-after": svg((4.2, 2.4), "Scores of shaped features, with the threshold", after),
    }
