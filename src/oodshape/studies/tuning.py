"""Tune the settings of other methods on surrogates: what tuning without real OOD data achieves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.images.identity import smallest
from oodshape.methods.base import Shaper
from oodshape.methods.detector import Method
from oodshape.methods.shapes.ash import AshB, AshP, AshS
from oodshape.methods.shapes.clipping import BFAct, ReAct, VraP
from oodshape.metrics.detection import auroc
from oodshape.studies.methods import measure
from oodshape.studies.network import Network

if TYPE_CHECKING:
    from pandas import DataFrame

LEVELS = tuple(step / 20 for step in range(1, 20))  # percentiles 5, 10, ..., 95
GRIDS: dict[str, tuple[Shaper, ...]] = {
    "react": tuple(ReAct(q=q) for q in LEVELS),
    "bfact": tuple(BFAct(q=q, order=order) for q, order in product(LEVELS, (1, 2, 3, 4))),
    "ash-p": tuple(AshP(p=p) for p in LEVELS),
    "ash-b": tuple(AshB(p=p) for p in LEVELS),
    "ash-s": tuple(AshS(p=p) for p in LEVELS),
    "vra-p": tuple(VraP(low=low, high=high) for low, high in product(LEVELS, LEVELS) if low < high),
}


@dataclass(frozen=True)
class Search:
    """A search for settings: the grids, the maximum number of images per side, and whether they are held out."""

    grids: Mapping[str, tuple[Shaper, ...]]
    most: int
    hold_out: bool  # whether the images of the search are excluded from the fit during the search


OURS = Search(GRIDS, most=250, hold_out=True)
# the published code: up to 50,000 images that it also fits on, VRA-P's limits as feature values, the first of equals
AUTHORS = Search(
    {
        **GRIDS,
        "vra-p": tuple(
            VraP(low=low / 10, high=high / 10, absolute=True) for low, high in product(range(4), range(5, 15))
        ),
    },
    most=50_000,
    hold_out=False,
)


def compare_tuned(network: Network, search: Search | None = None) -> DataFrame:
    """Return method, tuned, setting, surrogate_auroc, ood, fpr95, auroc: each method as given and tuned, and optfs-e.

    Settings are compared on at most 250 surrogates and as many training images, held out of the fit meanwhile. The best
    AUROC wins; among equals, the largest gap of the mean scores in standard deviations. The winner is fitted on the
    whole training set. With the authors' settings, the search is that of their code.
    """
    from pandas import DataFrame

    search = search or (AUTHORS if network.follows_authors else OURS)
    train, surrogate, most = network.train, network.require_surrogate(), search.most
    count = max(1, min(most, len(train) // 5)) if search.hold_out else most
    held = smallest(train.identities, count, network.seed, "tuning")
    fit = train[np.delete(np.arange(len(train)), held)] if search.hold_out else train
    sets = fit, _copy(train[held]), _copy(surrogate[smallest(surrogate.identities, most, network.seed, "tuning")])
    rows: list[dict[str, Any]] = []
    for name, grid in search.grids.items():
        given = network.methods[name]
        results = {setting: _evaluate(replace(given, shape=setting), *sets) for setting in grid}
        best = max(results, key=lambda setting: results[setting] if search.hold_out else results[setting][0])
        results[given.shape] = _evaluate(given, *sets)
        for tuned, setting in ((False, given.shape), (True, best)):
            columns = {"tuned": tuned, "setting": repr(setting), "surrogate_auroc": results[setting][0]}
            try:
                detector = replace(given, shape=setting).fit(train)
            except InputError:  # the given setting may not suit these features
                continue
            rows += measure(network, detector, method=name, **columns)
    columns = {"method": "optfs-e", "tuned": False, "setting": "no setting", "surrogate_auroc": np.nan}
    return DataFrame(rows + measure(network, network.methods["optfs-e"].fit(train), **columns))


def _copy(features: Features) -> Features:
    """Convert the features to one float32 tensor, once for hundreds of scores."""
    return Features.from_arrays(torch.cat([raw.float() for _, raw in features.chunks()]), features.head)


def _evaluate(method: Method, fit: Features, id_images: Features, noise: Features) -> tuple[float, float]:
    """Return the AUROC and the gap of the means in standard deviations; the lowest values if the fit is refused."""
    try:
        detector = method.fit(fit)
        inner, outer = detector.score(id_images).double(), detector.score(noise).double()
    except InputError:
        return -1.0, 0.0
    spread = float((inner.var(correction=0) + outer.var(correction=0)).sqrt())
    return auroc(inner, outer), float(inner.mean() - outer.mean()) / (spread or 1.0)
