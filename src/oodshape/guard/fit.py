"""From a network and folders of images to a detector that decides."""

from __future__ import annotations

import math
import os
import warnings
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

import oodshape
from oodshape.core.errors import InputError
from oodshape.features.extraction import Extraction
from oodshape.features.features import Features
from oodshape.features.panel import panel_features
from oodshape.features.statistics import NEGATIVE, FeatureStats
from oodshape.guard import selection
from oodshape.guard.fitted import About, Fitted
from oodshape.images import identity
from oodshape.images.image_set import ImageSet, Subset, identities_of, limited
from oodshape.images.listing import Given, GivenImages
from oodshape.images.preprocessing import Preprocessing
from oodshape.methods.auto import Auto
from oodshape.methods.detector import Method
from oodshape.methods.fusion import Fusion
from oodshape.methods.table import METHODS, named
from oodshape.metrics.conformal import check_enough, images_needed
from oodshape.networks.opening import Source, prepared

HELD_OUT = 0.2  # the share of the training images that sets the threshold where there are no others
WEAK = 0.8  # the AUROC against the panel below which no choice is a good one
SHOWN = 3  # unreadable files named in a warning


@dataclass(frozen=True)
class _Part:
    """Images that could be read, and their features."""

    images: ImageSet
    features: Features


def fit_guard(
    source: Source,
    images: Given,
    calibrate: Given | None,
    *,
    method: str | Method = "auto",
    alpha: float = 0.05,
    per_class: bool = False,
    preprocessing: Preprocessing | None = None,
    names: tuple[str, ...] = (),
    upright: bool = False,
    exportable: bool = False,
    limit: int | None = None,
    cache: Path | None = None,
    progress: bool | None = None,
) -> Fitted:
    """The detector of an open network and what is known about it: see `Guard.fit`."""
    recipe = _recipe(method, exportable)
    preprocessing = preprocessing or prepared(source.native)
    given = GivenImages(images, upright=upright)
    fitting, held = _parts(given, calibrate, alpha, limit)
    train, held_out = (
        _extracted(Extraction(source.classifier, part, preprocessing, progress=progress, skip=True), part, cache)
        for part in (fitting, held)
    )
    check_enough(len(held_out.features), alpha)
    _warn_if_unsuitable(method, recipe, train.features.stats)
    panel, choosing, deciding = [], None, held_out.features
    if recipe.wants_panel:
        panel = panel_features(source.classifier, train.images, preprocessing, cache=cache, progress=progress)
    if recipe.wants_panel and calibrate is not None:
        choosing, deciding = selection.parts(train.features, deciding, alpha, per_class=per_class)
    detector = recipe.fit(train.features, panel=panel, held_out=choosing)
    detector = detector.calibrate(deciding, alpha, per_class=per_class)
    _warn_if_weak(detector.scorer)
    baseline = METHODS["msp"].fit(train.features).calibrate(deciding, alpha)
    about = About(
        preprocessing=preprocessing,
        network=source.classifier.fingerprint,
        held_out=calibrate is not None,
        names=names or _names(source, given, train.features),
        method=method if isinstance(method, str) else "",
        model=source.spec,
        weights=source.weights,
        head=source.classifier.head_name or "",
        native=source.native,
        upright=upright,
        baseline=baseline,
        version=oodshape.__version__,
    )
    return Fitted(detector, about)


def _recipe(method: str | Method, exportable: bool) -> Method:
    recipe = named(method) if isinstance(method, str) else method
    if not exportable:
        return recipe
    if isinstance(recipe.score, Auto):
        names = tuple(name for name, candidate in recipe.score.methods().items() if candidate.exportable)
        recipe = replace(recipe, score=replace(recipe.score, candidates=names))
    if not recipe.exportable:
        those = ", ".join(name for name, each in METHODS.items() if each.exportable)
        raise InputError(f"{method} cannot be exported; these can: {those}")
    return recipe


def _parts(images: GivenImages, calibrate: Given | None, alpha: float, limit: int | None) -> tuple[ImageSet, ImageSet]:
    """The images to fit on and those to calibrate on, which have none in common."""
    needed = images_needed(alpha)
    if calibrate is not None:
        held = GivenImages(calibrate, upright=images.upright)
        common = {os.path.realpath(file) for file in images.files} & set(map(os.path.realpath, held.files))
        if common:
            raise InputError(
                f"{len(common)} of the {len(held)} calibration images are training images too, such as "
                f"{min(common)}; calibrate on images that the network was not trained on, or leave them out"
            )
        check_enough(len(held), alpha)
        return limited(images, limit), limited(held, None if limit is None else max(limit, needed))
    fewest = math.ceil(needed / HELD_OUT)
    if min(len(images), limit or len(images)) < fewest:
        raise InputError(
            f"without calibration images, {100 * HELD_OUT:g} % of the training images set the threshold: alpha = "
            f"{alpha:g} needs {needed} there, so {fewest} in all, got {min(len(images), limit or len(images))}; "
            "give more images, calibration images, or a larger alpha"
        )
    chosen = limited(images, limit)
    last = identity.held_out(identities_of(chosen), HELD_OUT, purpose="calibration", fewest=needed)
    return Subset(chosen, np.flatnonzero(~last).tolist()), Subset(chosen, np.flatnonzero(last).tolist())


def _extracted(extraction: Extraction, images: ImageSet, cache: Path | None) -> _Part:
    """The readable images and their features; a warning names those that cannot be read."""
    features, read = Features.extracted(extraction, cache)
    if len(read) == len(images):
        return _Part(images, features)
    lost = np.setdiff1d(np.arange(len(images)), read)
    reasons = [_reason(images, int(row)) for row in lost[:SHOWN]]
    more = [f"and {len(lost) - SHOWN} more"] if len(lost) > SHOWN else []
    warnings.warn(
        f"{len(lost)} of {len(images)} images of {images.name} cannot be read and are left out: "
        + "; ".join([*reasons, *more]),
        stacklevel=4,
    )
    return _Part(Subset(images, read.tolist()), features)


def _reason(images: ImageSet, row: int) -> str:
    try:
        images[row]
    except InputError as error:
        return str(error).partition(";")[0]
    return f"image {row} (now readable)"


def _warn_if_unsuitable(name: str | Method, method: Method, stats: FeatureStats) -> None:
    if method.for_nonnegative and stats.signed:
        warnings.warn(
            f"{name if isinstance(name, str) else 'this method'} is made for features that are never negative (after "
            f"a ReLU), but more than {100 * NEGATIVE:g} % of this network's are: it may do worse than a threshold on "
            "the softmax; prefer auto, gen or optfs-e, and compare with oodshape check",
            stacklevel=4,
        )


def _warn_if_weak(scorer: object) -> None:
    """A warning where even the best candidate hardly tells ID images from the panel."""
    best = scorer.against_scrambled if isinstance(scorer, Fusion) else None
    if best is not None and best < WEAK:
        warnings.warn(
            f"no method tells these images well from scrambled ones (best AUROC {100 * best:.1f} %); "
            "the guard may let much through: run `oodshape check` with strange images",
            stacklevel=4,
        )


def _names(source: Source, images: GivenImages, train: Features) -> tuple[str, ...]:
    """The names of the classes: the model's own, or those of the class folders where they are in its order."""
    classes = train.head.classes
    if len(source.names) == classes:
        return source.names
    if len(images.classes) != classes:
        return ()
    accuracy, chance = train.accuracy or 0.0, 1 / classes
    if accuracy < min(10 * chance, 0.5):
        warnings.warn(
            f"the network gives only {100 * accuracy:.1f} % of the training images the class of their folder: its "
            "classes are in another order than the sorted folders (then give their names), or the preprocessing or "
            "the weights are wrong; the folders' names are not used",
            stacklevel=4,
        )
        return ()
    return images.classes


def read_names(path: Path) -> tuple[str, ...]:
    """The names of the classes in a text file, one a line, in the network's order."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the class names {path}: {error}") from None
    return tuple(line.strip() for line in lines if line.strip())
