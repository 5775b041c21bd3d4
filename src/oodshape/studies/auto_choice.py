"""The choice of `auto` beside the truth: what the panel says of each method, what real OOD data say."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.methods.auto import Auto, split
from oodshape.methods.class_panel import ClassPanel
from oodshape.methods.detector import Method
from oodshape.methods.fusion import Fusion
from oodshape.methods.table import METHODS, NEWER
from oodshape.methods.together import fit_all
from oodshape.metrics.separation import auroc
from oodshape.studies.comparison import measured

if TYPE_CHECKING:
    from pandas import DataFrame

DEFAULT = Auto()
PAPER, LATER, AUTO, ONE = "paper", "newer", "auto", "auto, best one"


def choice(
    train: Features,
    inside: Features,
    ood: Mapping[str, Features],
    panel: Sequence[Features],
    methods: Mapping[str, Method] = METHODS,
    auto: Auto = DEFAULT,
) -> DataFrame:
    """method, group, panel_auroc, chosen, ood, fpr95, auroc of every method that works on features, and of `auto`.

    `panel_auroc` is what `auto` sees: fitted on its fitting part, the mean of `scrambled_auroc`, the selection part
    against the panel, and `near_auroc`, that against classes left out (NaN where none can be). The other figures are
    those of the method fitted on the whole training set, and of `auto` with its fusion (group auto) and with the
    best-ranked candidate alone.
    """
    from pandas import DataFrame

    single = {name: method for name, method in methods.items() if method.perturb.eps == 0 and not method.wants_panel}
    fitting, selection = split(train, auto.share)
    seen: dict[str, dict[str, float]] = {}
    tried = {name: method.unlabelled() for name, method in single.items()}
    for name, detector in fit_all(tried, fitting).items():
        scores = detector.score(selection)
        far = float(np.mean([auroc(scores, detector.score(images)) for images in panel]))
        seen[name] = {"panel_auroc": far, "scrambled_auroc": far, "near_auroc": np.nan}
    with contextlib.suppress(InputError):  # no class can be left out: scrambled images decide alone
        near = ClassPanel.of(fitting, selection).aurocs(tried)
        for name, value in seen.items():
            value["near_auroc"] = near[name]
            value["panel_auroc"] = (1 - auto.near) * value["scrambled_auroc"] + auto.near * value["near_auroc"]
    fused = Method(score=auto).fit(train, panel=panel)
    best = Method(score=replace(auto, fuse=1)).fit(train, panel=panel)
    assert isinstance(fused.scorer, Fusion)
    chosen = {member.name for member in fused.scorer.members}
    rows: list[dict[str, Any]] = []
    for name, detector in fit_all(single, train).items():
        group = LATER if name in NEWER else PAPER
        said = {"method": name, "group": group, **seen[name], "chosen": name in chosen}
        rows += measured(detector, inside, ood, **said)
    for name, detector in ((AUTO, fused), (ONE, best)):
        rows += measured(detector, inside, ood, method=name, group=name, panel_auroc=np.nan, chosen=False)
    return DataFrame(rows)


def regret(frame: DataFrame) -> DataFrame:
    """A row per network and OOD set, and one for the mean over them: rank correlations, and the regret of `auto`.

    Takes the columns of `choice` and `network`. `rank_paper` and `rank_all` are Spearman's correlation of
    `panel_auroc` and `auroc` over the paper's methods and over all; `best_paper` and `best_all` the best single
    method in hindsight; a regret is its AUROC less that of `auto`, below 0 where `auto` is ahead.
    """
    from pandas import DataFrame

    rows = []
    for network, part in frame.groupby("network", sort=False):
        keys = ["method", "group", "panel_auroc"]
        mean = part.groupby(keys, sort=False, dropna=False)[["fpr95", "auroc"]].mean().reset_index()
        for name, one in (*part.groupby("ood", sort=False), ("mean", mean)):
            rows.append({"network": network, "ood": name} | _row(one.set_index("method")))
    return DataFrame(rows)


def _row(one: DataFrame) -> dict[str, Any]:
    """What one OOD set says; the index are the methods."""
    sets = {"paper": one[one["group"] == PAPER], "all": one[one["group"].isin([PAPER, LATER])]}
    row: dict[str, Any] = {}
    for name, part in sets.items():
        row[f"rank_{name}"] = part["panel_auroc"].rank().corr(part["auroc"].rank())
    for name, part in sets.items():  # a group may be empty where methods were picked
        row |= {f"best_{name}": part["auroc"].idxmax() if len(part) else "", f"auroc_best_{name}": part["auroc"].max()}
    for name, method in (("auto", AUTO), ("one", ONE)):
        row |= {f"auroc_{name}": one.loc[method, "auroc"], f"fpr95_{name}": one.loc[method, "fpr95"]}
        for against in sets:
            row[f"regret_{name}_{against}"] = row[f"auroc_best_{against}"] - row[f"auroc_{name}"]
    return row
