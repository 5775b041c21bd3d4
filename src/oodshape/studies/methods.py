"""How methods compare: FPR95 and AUROC per OOD set, with and without OptFS, on ConvNets and on the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from oodshape.features.features import Features
from oodshape.methods.detector import Detector, Method
from oodshape.methods.registry import METHODS
from oodshape.methods.shapes.optfs import OptFS
from oodshape.metrics.detection import auroc, fpr_at_tpr

if TYPE_CHECKING:
    from pandas import DataFrame

# a score or method, and the same on features that OptFS has shaped
PAIRS = (
    ("msp", "optfs-msp"),
    ("mls", "optfs-mls"),
    ("energy", "optfs-e"),
    ("dice", "optfs-e+dice"),
    ("react", "optfs-e+react"),
)


def measured(detector: Detector, inside: Features, ood: Mapping[str, Features], **columns: Any) -> list[dict[str, Any]]:
    """A row per OOD set: the columns given, ood, fpr95 and auroc (fractions, ID positive)."""
    scores = detector.score(inside)
    rows = []
    for name, outside in ood.items():
        other = detector.score(outside)
        rows.append(columns | {"ood": name, "fpr95": fpr_at_tpr(scores, other), "auroc": auroc(scores, other)})
    return rows


def optfs_of(methods: Mapping[str, Method]) -> OptFS:
    """OptFS with the settings that the methods have."""
    shape = methods["optfs-v"].shape
    assert isinstance(shape, OptFS)
    return shape


def compatibility(
    train: Features, inside: Features, ood: Mapping[str, Features], methods: Mapping[str, Method] = METHODS
) -> DataFrame:
    """base, shaped (False, True), method, ood, fpr95, auroc: each score or method alone and with OptFS."""
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    for pair in PAIRS:
        for shaped, name in enumerate(pair):
            detector = methods[name].fit(train)
            rows += measured(detector, inside, ood, base=pair[0], shaped=bool(shaped), method=name)
    return DataFrame(rows)


def every_method(
    train: Features,
    inside: Features,
    ood: Mapping[str, Features],
    methods: Mapping[str, Method] = METHODS,
    proxy: Sequence[Features] = (),
) -> DataFrame:
    """method, ood, fpr95, auroc of every method that works on what is given.

    One that perturbs images does not work on features, and one that chooses by a proxy needs it.
    """
    from pandas import DataFrame

    rows: list[dict[str, Any]] = []
    for name, method in methods.items():
        if method.perturb.eps == 0 and (proxy or not method.wants_proxy):
            rows += measured(method.fit(train, proxy=proxy), inside, ood, method=name)
    return DataFrame(rows)


def generalisation(frame: DataFrame) -> DataFrame:
    """method, convnets, others: the mean AUROC on ConvNets and on all other networks, NaN where there is none.

    Takes the columns model, family, method and auroc (`Results.frame` has them); a model's OOD sets are averaged
    first, so that each network counts the same. A method that is missing on one network of a group has NaN there:
    its mean would not compare.
    """
    from pandas import DataFrame

    order = frame["method"].unique()
    means = frame.groupby(["method", "model"], sort=False)["auroc"].mean().unstack("model").loc[order]
    families = frame.drop_duplicates("model").set_index("model")["family"]
    convnets = [model for model in means.columns if families[model] == "ConvNet"]
    groups = {"convnets": convnets, "others": [model for model in means.columns if model not in convnets]}
    values = {name: means[models].mean(axis=1, skipna=False) for name, models in groups.items()}
    return DataFrame(values).rename_axis("method").reset_index()
