"""Compare methods: FPR95 and AUROC per OOD set, with and without OptFS, on ConvNets and on other networks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import numpy as np
from pandas import DataFrame

from oodshape.core.progress import announce
from oodshape.core.user_code import locate_failure
from oodshape.methods.detector import Detector, Method
from oodshape.methods.shapes.optfs import OptFS
from oodshape.metrics.registry import DEFAULT_METRICS
from oodshape.networks.model_names import Family
from oodshape.studies.load_networks import StudyNetwork

# a score or method, and the same on features shaped by OptFS
PAIRS = (
    ("msp", "optfs-msp"),
    ("mls", "optfs-mls"),
    ("energy", "optfs-e"),
    ("dice", "optfs-e+dice"),
    ("react", "optfs-e+react"),
)


def measure_sets(network: StudyNetwork, detector: Detector, **columns: Any) -> list[dict[str, Any]]:
    """Return a row per OOD set: the given columns, ood, fpr95 and auroc (fractions, ID positive)."""
    scores = detector.score(network.id_test)
    rows = []
    for name, features in network.ood.items():
        other = detector.score(features)
        rows.append(columns | {"ood": name} | {each.name: each(scores, other) for each in DEFAULT_METRICS})
    return rows


def measure_all(network: StudyNetwork, detectors: Mapping[str, Detector], column: str) -> DataFrame:
    """Measure several detectors; `column` holds their names."""
    return DataFrame([row for name, each in detectors.items() for row in measure_sets(network, each, **{column: name})])


def find_optfs(methods: Mapping[str, Method]) -> OptFS:
    """Return OptFS with the settings of these methods."""
    shape = methods["optfs-v"].shape
    assert isinstance(shape, OptFS)
    return shape


def needs_features_only(method: Method) -> bool:
    """Whether a method needs neither images to perturb nor a proxy OOD set."""
    return not method.perturbs and not method.wants_proxy


def compare_with_optfs(network: StudyNetwork) -> DataFrame:
    """Return base, shaped (False, True), method, ood, fpr95, auroc: each score or method alone and with OptFS."""
    names = {name: (pair[0], name != pair[0]) for pair in PAIRS for name in pair}
    detectors = {name: network.methods[name].fit(network.train) for name in names}
    frame = measure_all(network, detectors, "method")
    frame.insert(0, "base", [names[name][0] for name in frame["method"]])
    frame.insert(1, "shaped", [names[name][1] for name in frame["method"]])
    return frame


def compare_methods(network: StudyNetwork) -> DataFrame:
    """Return method, ood, fpr95, auroc of every compared method that works on these features.

    Methods that perturb images are left out, and those that select by a proxy OOD set if there is none. The OOD sets
    are all of them, or the requested one. A method that fails is announced, and has no figures.
    """
    rows: list[dict[str, Any]] = []
    tested = replace(network, ood={network.only: network.ood[network.only]}) if network.only else network
    for name, method in network.methods.items():
        if needs_features_only(method) or (network.proxy and method.wants_proxy):
            try:
                rows += measure_sets(tested, method.fit(network.train, proxy=network.proxy), method=name)
            except Exception as error:  # as in a benchmark, one method does not end a run
                announce(f"failed: {name} on {network.name}: {locate_failure(error)}")
                rows.append({"method": name, "ood": network.real} | {each.name: np.nan for each in DEFAULT_METRICS})
    return DataFrame(rows)


def average_by_family(frame: DataFrame) -> DataFrame:
    """Return method, ConvNets, transformers, MLPs: the mean AUROC on the networks of each family.

    Takes the columns network, family, method and auroc. The OOD sets of a network are averaged first, so that each
    network has the same weight. A method that is missing on one network of a family gets NaN.
    """
    order = frame["method"].unique()
    means = frame.groupby(["method", "network"], sort=False)["auroc"].mean().unstack("network").loc[order]
    families = frame.drop_duplicates("network").set_index("network")["family"][means.columns]
    averages = {
        f"{family}s": means.loc[:, (families == family).to_numpy()].mean(axis=1, skipna=False)
        for family in get_args(Family)
    }
    return DataFrame(averages).rename_axis("method").reset_index()
