"""Compare variants of OptFS: theta from OOD data, intervals, limits, and changing classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from pandas import DataFrame, concat

from oodshape.methods.registry import METHODS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.metrics.detection import auroc
from oodshape.studies.compare_methods import find_optfs, measure_all, measure_sets
from oodshape.studies.load_networks import StudyNetwork
from oodshape.studies.theta import cosine, fit_dynamic, fit_with_ood, interval_columns, measure_changed

NUMBERS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
TAILS = (0.0, 0.0001, 0.0005, 0.001, 0.005, 0.01, 0.05, 0.1)  # the paper's eight percentile pairs


def compare_variants(network: StudyNetwork) -> DataFrame:
    """Return variant, ood, fpr95, auroc: theta with each source of OOD data, with dynamic classes, and from ID data.

    Each theta is tested on every OOD set with the V score; the last variant is the E score of the ID-only theta.
    """
    train, methods = network.train, network.methods
    vanilla, optfs = methods["optfs-v"].fit(train), find_optfs(methods)
    sources = {"Real": network.ood[network.real], **network.surrogates}
    shapes = {name.capitalize(): fit_with_ood(train, source, optfs) for name, source in sources.items()}
    shapes["Dynamic"] = fit_dynamic(train, optfs=optfs)
    detectors = {name: replace(vanilla, shape=shape) for name, shape in shapes.items()}
    return measure_all(network, detectors | {"Ours (V)": vanilla, "Ours (E)": methods["optfs-e"].fit(train)}, "variant")


def sweep_limits(network: StudyNetwork, tails: Sequence[float] = TAILS) -> DataFrame:
    """Return tail, method, ood, fpr95, auroc, lower, upper (the limits); tail = 0 is the whole range."""
    frame, quantile = sweep_optfs(network, "tail", tails), network.train.stats.quantile
    return frame.assign(lower=frame["tail"].map(quantile), upper=(1 - frame["tail"]).map(quantile))


def sweep_optfs(network: StudyNetwork, setting: str, values: Sequence[float]) -> DataFrame:
    """Return the setting, method (optfs-v, optfs-e), ood, fpr95, auroc for each of its values; k = 0 is Energy."""
    methods, rows = network.methods, []
    for name in ("optfs-v", "optfs-e"):
        for value in values:
            settings: Any = {setting: value}
            method = methods["energy"]
            if settings != {"k": 0}:
                method = replace(methods[name], shape=replace(find_optfs(methods), **settings))
            rows += measure_sets(network, method.fit(network.train), **settings, method=name)
    return DataFrame(rows)


def compare_dynamic(network: StudyNetwork) -> DataFrame:
    """Return curve, left, right, theta with the network's classes and with changing ones, and the changed ratios."""
    fixed = network.methods["optfs-v"].fit(network.train).shape
    dynamic = fit_dynamic(network.train, optfs=find_optfs(network.methods))
    columns = {**interval_columns(dynamic.edges), **measure_changed(network.train, fixed)}
    curves: dict[str, Any] = {"Ours (V)": fixed, "Dynamic": dynamic}
    frames = [DataFrame({"curve": name, **columns, "theta": shape.theta}) for name, shape in curves.items()]
    return concat(frames, ignore_index=True)


def validate_term(network: StudyNetwork) -> DataFrame:
    """Return ood, norm_ratio |b|/|a|, cosine cos(a, b), auroc_with, auroc_without: may the OOD term be left out?

    a and b are the mean impacts of the training set and of the OOD set. auroc_with is that of theta ~ a - b on the same
    OOD set, auroc_without that of theta ~ a; both with the V score.
    """
    train, id_test = network.train, network.id_test
    vanilla = METHODS["optfs-v"].fit(train)
    assert isinstance(vanilla.shape, PiecewiseConstant)
    a, scores = train.stats.impact(vanilla.shape.edges), vanilla.score(id_test)
    rows = []
    for name, ood in network.ood.items():
        b = ood.stats.impact(vanilla.shape.edges)
        real = replace(vanilla, shape=fit_with_ood(train, ood))
        aurocs = auroc(real.score(id_test), real.score(ood)), auroc(scores, vanilla.score(ood))
        rows.append((name, float(np.linalg.norm(b) / np.linalg.norm(a)), cosine(a, b), *aurocs))
    return DataFrame(rows, columns=["ood", "norm_ratio", "cosine", "auroc_with", "auroc_without"])


def project_impacts(table: DataFrame) -> DataFrame:
    """Return ood, x, y, degrees, orthogonal, turned: b in the plane where a is (1, 0), from `validate_term`.

    orthogonal is the length of b orthogonal to a, and turned the angle between a and a - b in degrees.
    """
    cosines, ratio = table["cosine"].clip(-1, 1), table["norm_ratio"]
    x, y = ratio * cosines, ratio * np.sqrt(1 - cosines**2)
    degrees, turned = np.degrees(np.arccos(cosines)).round(9), np.degrees(np.arctan2(y, 1 - x))
    return DataFrame({"ood": table["ood"], "x": x, "y": y, "degrees": degrees, "orthogonal": y, "turned": turned})
