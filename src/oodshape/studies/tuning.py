"""The rivals with settings chosen on surrogates: what tuning without real OOD data is worth."""

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
from oodshape.methods.registry import METHODS
from oodshape.methods.shapes.ash import AshB, AshP, AshS
from oodshape.methods.shapes.clipping import BFAct, ReAct, VraP
from oodshape.metrics.detection import auroc
from oodshape.studies.methods import measure

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
    """How settings are chosen on surrogates: the grids, the most images of a side, and whether those are held out."""

    grids: Mapping[str, tuple[Shaper, ...]]
    most: int
    apart: bool  # images that are tried on are kept from fitting meanwhile


OURS = Search(GRIDS, most=250, apart=True)
# the published code: up to 50,000 images that it also fits on, VRA-P's limits as feature values, of equals the first
AUTHORS = Search(
    {
        **GRIDS,
        "vra-p": tuple(
            VraP(low=low / 10, high=high / 10, absolute=True) for low, high in product(range(4), range(5, 15))
        ),
    },
    most=50_000,
    apart=False,
)


def tune_on_surrogates(
    train: Features,
    inside: Features,
    ood: Mapping[str, Features],
    surrogate: Features,
    methods: Mapping[str, Method] = METHODS,
    *,
    search: Search = OURS,
    seed: int = 0,
) -> DataFrame:
    """method, tuned, setting, surrogate_auroc, ood, fpr95, auroc: each rival as given, and tuned on surrogates.

    Settings are tried on at most 250 surrogates and as many training images, held out of the fit while trying;
    the best AUROC wins, of equals the one with the largest gap of mean scores in standard deviations. The winner
    is fitted on the whole training set. `search=AUTHORS` is how the authors' code of OptFS does it.
    """
    from pandas import DataFrame

    most = search.most
    held = smallest(train.identities, max(1, min(most, len(train) // 5)) if search.apart else most, seed, "tuning")
    fit, tried = train[np.delete(np.arange(len(train)), held)] if search.apart else train, _single(train[held])
    noise = _single(surrogate[smallest(surrogate.identities, most, seed, "tuning")])
    rows: list[dict[str, Any]] = []
    for name, grid in search.grids.items():
        given = methods[name]
        worth = {setting: _worth(replace(given, shape=setting), fit, tried, noise) for setting in grid}
        chosen = max(worth, key=lambda setting: worth[setting] if search.apart else worth[setting][0])
        worths = {given.shape: _worth(given, fit, tried, noise), chosen: worth[chosen]}
        for tuned, setting in ((False, given.shape), (True, chosen)):
            try:
                detector = replace(given, shape=setting).fit(train)
            except InputError:  # a setting as given may not suit these features
                continue
            said = {"method": name, "tuned": tuned, "setting": repr(setting), "surrogate_auroc": worths[setting][0]}
            rows += measure(detector, inside, ood, **said)
    return DataFrame(rows)


def _single(features: Features) -> Features:
    """The features as one float32 tensor, converted once for hundreds of scores."""
    return Features.from_arrays(torch.cat([raw.float() for _, raw in features.chunks()]), features.head)


def _worth(method: Method, fit: Features, tried: Features, noise: Features) -> tuple[float, float]:
    """(AUROC, gap of the means in standard deviations) on surrogates; the lowest where the fit is refused."""
    try:
        detector = method.fit(fit)
        inner, outer = detector.score(tried).double(), detector.score(noise).double()
    except InputError:
        return -1.0, 0.0
    spread = float((inner.var(correction=0) + outer.var(correction=0)).sqrt())
    return auroc(inner, outer), float(inner.mean() - outer.mean()) / (spread or 1.0)
