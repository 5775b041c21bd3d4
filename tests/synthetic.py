"""Small made-up Results: random metrics, curves of normal scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from oodshape.benchmark.results import Row, RunResults, ScoreCurve, collect_provenance
from oodshape.metrics.detection import Estimate, roc_points
from oodshape.metrics.registry import METRICS, measure

MODELS, METHODS, SETS = ("convnet", "vit"), ("msp", "energy", "react", "optfs-e"), ("letters", "noise")


def row(model: str = "convnet", method: str = "msp", ood: str = "letters", **values: Any) -> Row:
    """A row with the metrics given; an interval of +-0.01 around each, cut at 0 and 1."""
    numbers = {"auroc": 0.75, "fpr95": 0.5, "aupr_in": 0.7, "aupr_out": 0.6, "fpr95_ood": 0.45}
    numbers |= {name: values.pop(name) for name in METRICS if name in values}
    metrics = {name: Estimate(value, max(value - 0.01, 0), min(value + 0.01, 1)) for name, value in numbers.items()}
    said = {"benchmark": "digits", "family": "ConvNet", "group": "near" if ood == "letters" else "far"}
    sizes = {"n_train": 866, "n_id": 577, "n_ood": 400, "id_accuracy": 0.985, "metrics": metrics}
    return Row(model=model, method=method, ood=ood, **(said | sizes | values))


def results(
    models: Sequence[str] = MODELS,
    methods: Sequence[str] = METHODS,
    sets: Sequence[str] = SETS,
    *,
    skipped: Sequence[tuple[str, str]] = (("photos", "no folder data/photos"),),
    seed: int = 0,
    **settings: Any,
) -> RunResults:
    """Everything a benchmark run leaves, for all combinations of the names."""
    from oodshape import METHODS as KNOWN
    from oodshape import Method

    rng = np.random.default_rng(seed)
    rows, curves = [], []
    for model in models:
        for method in methods:
            for ood in sets:
                shift = rng.uniform(0, 4)
                id_scores, ood_scores = rng.normal(shift, 1, 300), rng.normal(0, 1.5, 200)
                cost = {"fit_seconds": float(rng.uniform()), "image_seconds": {ood: float(rng.uniform())}}
                right = rng.random(300) < 0.9
                measured, _ = measure(id_scores, {ood: ood_scores}, correct=right, **cost, resamples=5)
                rows.append(row(model, method, ood, metrics=measured[ood]))
                fpr, tpr = roc_points(id_scores, ood_scores)
                curves.append(ScoreCurve(model=model, method=method, ood=ood, fpr=fpr, tpr=tpr))
    origin = collect_provenance(
        benchmark_hash="sha256:0123",
        weights=dict.fromkeys(models, "sha256:4567"),
        methods={name: KNOWN.get(name, Method()) for name in methods},
        settings={"limit": None, "seed": seed, **settings},
    )
    return RunResults(tuple(rows), origin, tuple(skipped), tuple(curves))
