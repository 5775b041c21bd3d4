"""From a network and folders of images to a detector that decides."""

from __future__ import annotations

import math
import warnings
from pathlib import Path

import oodshape
from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.features.statistics import NEGATIVE
from oodshape.features.sums import Summed
from oodshape.guard import selection
from oodshape.guard.collect import PartFiles, part_files, parts_for
from oodshape.guard.fitted import About
from oodshape.guard.parts import of_collected, of_images, of_tensors
from oodshape.guard.recipe import recipe_of
from oodshape.guard.samples import Samples, check_kept
from oodshape.guard.way import Way
from oodshape.images.listing import Given
from oodshape.images.preprocessing import Preprocessing
from oodshape.methods.detector import Detector, Method
from oodshape.methods.fusion import Fusion
from oodshape.methods.table import METHODS
from oodshape.metrics.conformal import check_enough
from oodshape.networks.opening import Source, prepared

WEAK = 0.8  # the AUROC against the panel below which no choice is a good one


def fit_guard(
    source: Source,
    images: Given | None,
    calibrate: Given | None,
    *,
    parts: PartFiles | None = None,
    method: str | Method = "auto",
    alpha: float = 0.05,
    per_class: bool = False,
    preprocessing: Preprocessing | None = None,
    names: tuple[str, ...] = (),
    upright: bool = False,
    exportable: bool = False,
    limit: int | None = None,
    tensors: bool = False,
    cache: Path | None = None,
    progress: bool | None = None,
    batch_size: int = 64,
    workers: int | None = None,
    keep_samples: int = 0,
) -> tuple[Detector, About]:
    """The detector of an open network and what is known about it: see `Guard.fit`."""
    recipe = recipe_of(method, exportable)
    wants_panel = recipe.wants_panel
    if (images is None) == (parts is None):
        raise InputError("give images to fit on, or parts that were collected of them: one of the two")
    if keep_samples:
        check_kept(keep_samples, tensors or parts is not None)
    if tensors:
        found = of_tensors(source.classifier, images, calibrate, alpha, limit, wants_panel, cache, progress)
    elif parts is None:
        preprocessing = preprocessing or prepared(source.native)
        way = Way(source.classifier, preprocessing, upright, cache, progress, batch_size, workers)
        found = of_images(way, images, calibrate, recipe, alpha, limit)
    else:
        collected = parts_for(source, part_files(parts), recipe, preprocessing)
        preprocessing, upright = collected.made.preprocessing, collected.made.upright
        way = Way(source.classifier, preprocessing, upright, cache, progress, batch_size, workers)
        found = of_collected(way, collected, calibrate, alpha)
    check_enough(len(found.held_out), alpha)
    _warn_if_unsuitable(method, recipe, found.train)
    panel, choosing, deciding = [], None, found.held_out
    if wants_panel:
        panel = found.panel()
        if calibrate is not None:
            choosing, deciding = selection.parts(found.train, deciding, alpha, per_class=per_class)
    detector = recipe.fit(found.train, panel=panel, held_out=choosing)
    detector = detector.calibrate(deciding, alpha, per_class=per_class)
    _warn_if_weak(detector.scorer)
    softmax = METHODS["msp"]
    same = recipe == softmax and not per_class
    baseline = detector if same else softmax.fit(found.train).calibrate(deciding, alpha)
    return detector, About(
        preprocessing=preprocessing,
        network=source.classifier.fingerprint,
        held_out=calibrate is not None,
        names=names or _names(source, found.classes, found.train),
        method=method if isinstance(method, str) else "",
        model=source.spec,
        weights=source.weights,
        head=source.classifier.head_name or ("" if parts is None else collected.made.head),
        native=source.native,
        upright=upright,
        baseline=baseline,
        version=oodshape.__version__,
        precision=source.classifier.precision,
        samples=Samples.of(way, images, keep_samples) if keep_samples else None,
    )


def _warn_if_unsuitable(name: str | Method, method: Method, train: Features | Summed) -> None:
    if method.for_nonnegative and train.stats.signed:  # most methods need no statistics: then none are made
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


def _names(source: Source, given: tuple[str, ...], train: Features | Summed) -> tuple[str, ...]:
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
            stacklevel=4,
        )
        return ()
    if accuracy < min(10 * chance, 0.5):
        warnings.warn(
            f"the network gives only {100 * accuracy:.1f} % of the training images the class of their folder or "
            "label: its classes are in another order (then give their names), or the preprocessing or the weights are "
            "wrong; the names that come with the images are not used",
            stacklevel=4,
        )
        return ()
    return given


def read_names(path: Path) -> tuple[str, ...]:
    """The names of the classes in a text file, one a line, in the network's order."""
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot read the class names {path}: {error}") from None
    return tuple(line.strip() for line in lines if line.strip())
