"""calibrate: a new threshold for a guard, without a new fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from oodshape.core.errors import InputError
from oodshape.guard.fitted import About, Fitted
from oodshape.guard.way import Way
from oodshape.images.listing import Given, image_set
from oodshape.methods.detector import Detector
from oodshape.metrics.conformal import check_enough
from oodshape.networks.opening import Source

# What can be opened because a file says so: a name that a file chooses may import code, or fetch it.
OWN = "zoo:"


def recalibrated(guard: Fitted, alpha: float | None = None) -> tuple[Detector, About]:
    """The guard's parts with the threshold that another alpha gives on the images that calibrated it before."""
    if alpha is None:
        raise InputError(
            "nothing would change: give images that the network was not trained on, another alpha, or both"
        )

    detector, baseline = replace(guard.detector, alpha=alpha), guard.about.baseline
    moved = None if baseline is None else replace(baseline, alpha=alpha)
    return detector, replace(guard.about, baseline=moved)


def calibrate_guard(
    guard: Fitted,
    source: Source,
    images: Given,
    *,
    alpha: float | None = None,
    per_class: bool | None = None,
    cache: Path | None = None,
    progress: bool | None = None,
    batch_size: int = 64,
    workers: int | None = None,
) -> tuple[Detector, About]:
    """The guard's parts with the threshold of new images, on its open network; what is not given stays as it was.

    Nothing in a guard tells whether the network was trained on an image: that they are held out is the caller's word.
    """
    detector, about = guard.detector, guard.about
    alpha = detector.alpha if alpha is None else alpha
    assert alpha is not None
    held = image_set(images, upright=about.upright)
    check_enough(len(held), alpha)
    features = Way(source.classifier, guard.preparation, about.upright, cache, progress, batch_size, workers).extracted(
        held
    )
    grouped = detector.groups is not None if per_class is None else per_class
    baseline = None if about.baseline is None else about.baseline.calibrate(features, alpha)
    about = replace(about, baseline=baseline, held_out=True)
    return detector.calibrate(features, alpha, per_class=grouped), about


def own_model(guard: Fitted) -> tuple[str, str | None]:
    """(model, weights) as the guard's file names them, where a file may say what is opened."""
    if not guard.about.model.startswith(OWN):
        raise InputError(
            f"give the network that the guard was fitted for ({guard.about.model or 'it was given in Python'}): "
            "--model, or model=...; a file may not say what is imported"
        )
    return guard.about.model, guard.about.weights or None
