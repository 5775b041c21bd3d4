"""What `Guard.fit` does with images that are split: fit, calibrate, and name the classes."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

from oodshape.core.errors import InputError
from oodshape.features.feature_stats import NEGATIVE
from oodshape.features.features import Features
from oodshape.features.sums import Summed
from oodshape.guard.fit.split import Split, split_held_out
from oodshape.guard.fitted import Fitted
from oodshape.methods.detector import Detector, Method
from oodshape.methods.fusion import Fusion
from oodshape.methods.records import BASELINE
from oodshape.methods.registry import METHODS
from oodshape.metrics.conformal import check_enough
from oodshape.networks.loading import Source

WEAK = 0.8  # the AUROC on scrambled images below which no selection is a good one


def fit_detector(
    found: Split, method: str | Method, recipe: Method, alpha: float, *, per_class: bool, held_out: bool
) -> tuple[Detector, Detector]:
    """Return the calibrated detector and the MSP baseline, calibrated on the same images.

    If the calibration images are `held_out` from training, some of them select methods in place of training images.
    """
    check_enough(len(found.held_out), alpha)
    _warn_if_unsuitable(method, recipe, found.train)
    proxy, selecting, deciding = [], None, found.held_out
    if recipe.wants_proxy:
        proxy = found.proxy()
        if held_out:
            selecting, deciding = split_held_out(found.train, deciding, alpha, per_class=per_class)
    detector = recipe.fit(found.train, proxy=proxy, held_out=selecting)
    detector = detector.calibrate(deciding, alpha, per_class=per_class)
    _warn_if_weak(detector.scorer)
    softmax = METHODS[BASELINE]
    same = recipe == softmax and not per_class
    return detector, detector if same else softmax.fit(found.train).calibrate(deciding, alpha)


def _warn_if_unsuitable(name: str | Method, method: Method, train: Features | Summed) -> None:
    if method.for_nonnegative and train.stats.signed:  # most methods need no statistics: then none are made
        warnings.warn(
            f"{name if isinstance(name, str) else 'this method'} is made for features that are never negative (after "
            f"a ReLU), but more than {100 * NEGATIVE:g} % of this network's are: it may be worse than the MSP "
            "baseline; prefer auto, gen or optfs-e, and compare with oodshape check",
            stacklevel=4,
        )


def _warn_if_weak(scorer: object) -> None:
    """Warn if even the best candidate hardly separates ID images from scrambled ones."""
    best = scorer.against_scrambled if isinstance(scorer, Fusion) else None
    if best is not None and best < WEAK:
        warnings.warn(
            f"no method separates these images well from scrambled ones (best AUROC {100 * best:.1f} %); "
            "the guard may accept many OOD images: run `oodshape check` with OOD images",
            stacklevel=4,
        )


def class_names(source: Source, given: tuple[str, ...], train: Features | Summed) -> tuple[str, ...]:
    """The names of the classes: the model's own, or those of the images' labels where they are in its order."""
    classes = train.head.classes
    if len(source.names) == classes:
        return source.names
    if len(given) != classes:
        return ()
    accuracy, chance = train.accuracy or 0.0, 1 / classes
    if abs(accuracy - chance) <= 4 * math.sqrt(chance * (1 - chance) / len(train)):
        warnings.warn(
            f"the network gives {100 * accuracy:.1f} % of the training images the class of their folder, as chance "
            f"would ({100 * chance:.1f} %): was it ever trained, and were its weights loaded (--weights, weights=...)? "
            "Or its classes are in another order than the sorted folders (then give their names); the folders' names "
            "are not used",
            stacklevel=3,
        )
        return ()
    if accuracy < min(10 * chance, 0.5):
        warnings.warn(
            f"the network gives only {100 * accuracy:.1f} % of the training images the class of their folder or "
            "label: its classes are in another order (then give their names), or the preprocessing or the weights are "
            "wrong; the names that come with the images are not used",
            stacklevel=3,
        )
        return ()
    return given


# What can be opened because a file says so: a name that a file chooses may import code, or fetch it.
OWN = "zoo:"


def own_model(guard: Fitted) -> tuple[str, Path | None]:
    """(model, weights) as the guard's file names them, where a file may say what is opened."""
    if not guard.about.model.startswith(OWN):
        raise InputError(
            f"give the network that the guard was fitted for ({guard.about.model or 'it was given in Python'}): "
            "--model, or model=...; a file may not say what is imported"
        )
    return guard.about.model, Path(guard.about.weights) if guard.about.weights else None
