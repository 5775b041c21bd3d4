"""What `Guard.fit` does with images that are split: fit, calibrate, and name the classes."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import torch

from oodshape.core.errors import InputError
from oodshape.features.feature_stats import NEGATIVE
from oodshape.features.features import Features
from oodshape.features.training_sums import TrainingSums
from oodshape.guard.fit.split import Split, split_held_out
from oodshape.guard.fitted import Fitted
from oodshape.methods.detector import Detector, Method
from oodshape.methods.fusion import Fusion
from oodshape.methods.records import BASELINE
from oodshape.methods.registry import METHODS
from oodshape.methods.shapes.optfs import BySign, OptFS
from oodshape.metrics.conformal import check_enough
from oodshape.networks.loading import OpenNet
from oodshape.networks.model_names import readable_names

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


def _warn_if_unsuitable(name: str | Method, method: Method, train: Features | TrainingSums) -> None:
    if isinstance(train, Features) and not isinstance(method.shape, (OptFS, BySign)):  # these warn by themselves
        train.warn_if_untrained()
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


def find_class_names(
    source: OpenNet, given: tuple[str, ...], train: Features | TrainingSums, chosen: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """The names of the classes: those chosen, the model's own, or those of the images' labels in its order.

    Chosen names that are those of the labels tell which class the images of a label belong to.
    """
    classes, given = train.head.classes, readable_names(given)
    if chosen:
        if sorted(chosen) != sorted(given) or not isinstance(train, Features) or train.labels is None:
            return chosen
        train = train.with_labels(torch.tensor([*map(chosen.index, given), -1])[train.labels])
    elif len(source.names) == classes and source.names != given:
        return source.names
    if len(given) != classes:
        return chosen
    accuracy, chance = train.accuracy or 0.0, 1 / classes
    guessed = abs(accuracy - chance) <= 4 * math.sqrt(chance * (1 - chance) / len(train))
    moved = train.moved_class() if isinstance(train, Features) else None
    if guessed or accuracy < min(10 * chance, 0.5):
        how = f", as chance would ({100 * chance:.1f} %)" if guessed else ""
        those = f"only {100 * accuracy:.1f} % of the training images the class of their folder or label{how}"
    elif moved is not None:
        names = chosen or given
        those = f"most images of {names[moved[0]]} the class of {names[moved[1]]}"
    else:
        return chosen or given
    order = "than the names given" if chosen else "then give their names; those of the images are not used"
    warnings.warn(
        f"the network gives {those}: was it ever trained, and were its weights loaded (--weights, weights=...)? Or its "
        f"classes are in another order ({order}), or the preprocessing is wrong",
        stacklevel=3,
    )
    return chosen


# What can be opened because a file says so: a name that a file chooses may import code, or fetch it.
OWN = "zoo:"


def name_model(guard: Fitted) -> tuple[str, Path | None]:
    """(model, weights) as the guard's file names them, where a file may say what is opened."""
    if not guard.about.model.startswith(OWN):
        raise InputError(
            f"give the network that the guard was fitted for ({guard.about.model or 'it was given in Python'}): "
            "--model, or model=...; a file may not say what is imported"
        )
    return guard.about.model, Path(guard.about.weights) if guard.about.weights else None
