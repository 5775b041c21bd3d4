"""Split images of any kind into disjoint sets to fit on and to calibrate on."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features.features import Features, check_labels
from oodshape.features.proxy import SIZE, extract_synthetic_features, extract_tensor_proxy
from oodshape.features.tensor_batches import extract_tensors
from oodshape.features.training_sums import TrainingSums
from oodshape.guard.fit.collect import collect_part
from oodshape.guard.fit.extractor import Extractor, warn_of_unreadable
from oodshape.guard.fit.parts import HELD_OUT, Collected
from oodshape.guard.fit.prints import Prints, find_known, make_prints
from oodshape.guard.fit.sanity import Batches, sanity_images, sanity_tensors
from oodshape.images import identity
from oodshape.images.duplicates import SKETCH, find_copies, find_copies_in_sketch, join_sketches, make_sketch
from oodshape.images.sources.image_set import ImageSet, limit_images
from oodshape.images.sources.memory import check_prepared
from oodshape.images.sources.open_images import Given, find_classes, open_images
from oodshape.methods.auto import MEMORISED
from oodshape.methods.detector import Method
from oodshape.metrics.conformal import check_enough, images_needed
from oodshape.networks.classifier import Classifier

Sketch = identity.Keys | None
SANITY = 64  # prepared tensors whose mean and standard deviation the sanity check's noise has


@dataclass(frozen=True)
class Split:
    """Two parts, functions that make proxy sets and the sanity check's inputs, and class names if known."""

    train: Features | TrainingSums
    held_out: Features
    proxy: Callable[[], list[Features]]
    sanity: Batches
    shape: tuple[int, ...] | None  # of an image as the network takes it; None: they differ
    classes: tuple[str, ...] = ()
    # at most `SKETCH` hashes of the training images, and of the calibration images where others were given
    sketches: Callable[[], tuple[Sketch, Sketch]] = lambda: (None, None)


def split_images(
    extractor: Extractor, images: Given, calibrate: Given | None, recipe: Method, alpha: float, limit: int | None
) -> Split:
    """The parts of images that have to be prepared: those of a part that is the whole."""
    given = open_images(images, upright=extractor.upright)
    held = None if calibrate is None else open_images(calibrate, upright=extractor.upright)
    total = check_images(given, held, alpha, limit)
    found = collect_part(
        extractor, given if limit is None else limit_images(given, limit), recipe, hold_out=held is None
    )
    warn_of_unreadable(given.name, total, found.lost, found.reasons)
    # few are read: an archive or a bucket would be read a second time otherwise
    found = replace(found, make_sketch=lambda: make_sketch(limit_images(given, SKETCH)))
    return _divided(extractor, found, held, alpha, limit, find_classes(given))


def check_images(given: ImageSet, held: ImageSet | None, alpha: float, limit: int | None) -> int:
    """Refuse too few images, or calibration images that are training images too; how many are fitted on or split."""
    total = min(len(given), limit or len(given))
    if held is None:
        check_enough_to_split(total, alpha)
    else:
        refuse_copies(find_copies(held, given), len(held))
        check_enough(len(held), alpha)
    return total


def split_collected(extractor: Extractor, found: Collected, calibrate: Given | None, alpha: float) -> Split:
    """The parts of images that were collected before."""
    warn_of_unreadable("the parts", found.made.total, found.lost, found.reasons)
    if calibrate is not None and found.made.held_out:
        raise InputError(
            "these parts keep a share of the training images to set the threshold: leave the calibration images out, "
            "or collect without --hold-out"
        )
    if calibrate is None and not found.made.held_out:
        raise InputError(
            "nothing would set the threshold: give images that the network was not trained on (--calibrate), or "
            "collect with --hold-out"
        )
    held = None if calibrate is None else open_images(calibrate, upright=extractor.upright)
    if held is not None:
        check_enough(len(held), alpha)
        _refuse_sketched(held, found)
    return _divided(extractor, found, held, alpha, None, found.made.classes)


def _refuse_sketched(held: ImageSet, found: Collected) -> None:
    """Refuse calibration images that the parts' sketch has; report what a sketch of some images cannot show."""
    sketch, total = found.make_sketch(), found.made.total
    names = find_copies_in_sketch(held, sketch)
    refuse_copies(names, len(held), at_least=len(sketch) == SKETCH)
    if len(sketch) == SKETCH < total:
        few = math.ceil(3 * total / SKETCH)  # of which a sketch misses all with a probability of exp(-3) = 5 %
        warnings.warn(
            f"the parts hold hashes of {SKETCH:,} of the {total:,} training images, and no calibration image is among "
            f"them; an overlap of fewer than about {few:,} images cannot be detected",
            stacklevel=4,
        )


def _divided(
    extractor: Extractor,
    found: Collected,
    held: ImageSet | None,
    alpha: float,
    limit: int | None,
    classes: tuple[str, ...],
) -> Split:
    """Return the images to fit on and those that set the threshold: other images, or held-out collected ones."""
    train: Features | TrainingSums | None = found.rows if found.summed is None else found.summed
    assert train is not None
    shape = (extractor.preprocessing.channels, *found.sizes[0]) if len(found.sizes) == 1 else None
    if held is not None:
        held = held if limit is None else limit_images(held, max(limit, images_needed(alpha)))
        held_out = extractor.calibration(held, shape)
    elif isinstance(train, Features):
        check_enough_to_split(len(train), alpha)
        last = identity.hold_out(train.identities, HELD_OUT, purpose="calibration", fewest=images_needed(alpha))
        train, held_out = train[np.flatnonzero(~last)], train[np.flatnonzero(last)]
    else:
        check_enough(0 if found.held_out is None else len(found.held_out), alpha)
        assert found.held_out is not None
        held_out = found.held_out

    def proxy() -> list[Features]:
        made = found.proxy_of(train.identities if isinstance(train, Features) else None)
        if made is None or not found.sizes:
            return [] if made is None else [made]
        how = {"cache": extractor.cache, **vars(extractor.run)}
        return [made, *extract_synthetic_features(extractor.classifier, extractor.preprocessing, found.sizes[0], **how)]

    def sanity() -> Iterator[Tensor]:
        return sanity_images(extractor.preprocessing, found.sizes[0]) if found.sizes else iter(())

    def sketches() -> tuple[Sketch, Sketch]:
        return found.make_sketch(), None if held is None else make_sketch(held)

    return Split(train, held_out, proxy, sanity, shape, classes, sketches)


def split_tensors(
    classifier: Classifier,
    images: Any,
    calibrate: Any | None,
    alpha: float,
    limit: int | None,
    proxy: bool,
    cache: Path | None,
    progress: bool | None,
) -> Split:
    """The parts of tensors that the network takes as they are."""
    if limit is not None:
        raise InputError("limit chooses among images; of prepared tensors give fewer batches")
    for each in (images, calibrate):
        if each is not None:
            check_prepared(each)
    # of those kept for scrambling, some may turn out to be held out; the sanity check needs a few
    keep = math.ceil(SIZE / (1 - HELD_OUT)) if proxy else SANITY
    seen = extract_tensors(classifier, images, keep=keep, cache=cache, progress=progress)
    if proxy:
        seen.check_one_size()
    every = Features.from_tensors(seen, classifier.head)
    check_labels(every.labels, every.head.classes)
    if calibrate is None:
        check_enough_to_split(len(every), alpha)
        last = identity.hold_out(seen.identities, HELD_OUT, purpose="calibration", fewest=images_needed(alpha))
        train, held_out = every[np.flatnonzero(~last)], every[np.flatnonzero(last)]
    else:
        last = np.zeros(len(every), bool)
        others = extract_tensors(classifier, calibrate, shape=seen.shape, cache=cache, progress=progress)
        train, held_out = every, Features.from_tensors(others, classifier.head)
        refuse_copies(
            [f"image {row}" for row in np.flatnonzero(np.isin(held_out.identities, seen.identities))], len(held_out)
        )
    fitted = np.flatnonzero(~last[seen.kept_rows])[:SIZE]
    base, which = seen.kept[fitted], seen.identities[seen.kept_rows[fitted]]
    scramble = partial(extract_tensor_proxy, classifier, base, which, progress=progress)
    given = None if calibrate is None else join_sketches([held_out.identities])
    sanity = partial(sanity_tensors, seen.kept)
    return Split(
        train, held_out, scramble, sanity, seen.shape, sketches=lambda: (join_sketches([seen.identities]), given)
    )


TRAINED = "training images too"


def refuse_copies(names: list[str], of: int, others: str = TRAINED, *, at_least: bool = False) -> None:
    """An error where calibration images, so many in all, are other images too, which voids the guarantee."""
    if names:
        count = f"{'at least ' if at_least else ''}{len(names)}"
        raise InputError(
            f"{count} of the {of} calibration images are {others}, such as {min(names)}; calibrate "
            "on images that were used for nothing else, or leave them out"
        )


def refuse_prints(calibration: Features, known: Prints | None, others: str) -> None:
    """An error where the pixels of calibration images are those of other images, in files of any format."""
    rows = find_known(make_prints(calibration, most=len(calibration)), known)
    refuse_copies([f"image {row}" for row in rows], len(calibration), others)


def check_enough_to_split(n: int, alpha: float) -> None:
    """Refuse fewer training images than are needed where a share of them sets the threshold."""
    needed = images_needed(alpha)
    fewest = math.ceil(needed / HELD_OUT)
    if n < fewest:
        raise InputError(
            f"without calibration images, {100 * HELD_OUT:g} % of the training images set the threshold: alpha = "
            f"{alpha:g} needs {needed} there, so {fewest} in all, got {n}; "
            "give more images, calibration images, or a larger alpha"
        )


SELECTING = 80  # calibration images to select by, at least: held-out classes need some on either side
DECIDING = 100  # calibration images for the threshold, at least, where others select
MEMORISED_SELECTING = 40  # the first limit for memorised training images, which are worse to select by than few others


def split_held_out(
    train: Features | TrainingSums, held_out: Features, alpha: float, *, per_class: bool = False
) -> tuple[Features | None, Features]:
    """(calibration images to select methods by, those that set the threshold); no image is in both.

    Half of them select, by identity, or fewer where the threshold needs the rest. The first is None, and all set the
    threshold, if there are too few for both, or if a class would lose its own threshold. If the network has memorised
    its training images, fewer are enough.
    """
    memorised = (train.accuracy or 0.0) >= MEMORISED
    fewest = MEMORISED_SELECTING if memorised else SELECTING
    needed = images_needed(alpha) if memorised else max(DECIDING, images_needed(alpha))
    count = min(len(held_out) // 2, len(held_out) - needed)
    if count < fewest:
        return None, held_out
    drawn = identity.draw_keys(held_out.identities, 0, "choice of methods")
    selects = drawn < np.sort(drawn)[count]  # images of equal identity stay together
    if int(selects.sum()) < fewest:
        return None, held_out
    rest = held_out[np.flatnonzero(~selects)]
    if per_class and _own(rest, images_needed(alpha)) != _own(held_out, images_needed(alpha)):
        return None, held_out
    return held_out[np.flatnonzero(selects)], rest


def _own(held_out: Features, needed: int) -> set[int]:
    """The predicted classes with enough images for a threshold of their own."""
    classes, counts = np.unique(held_out.predictions.cpu().numpy(), return_counts=True)
    return set(classes[counts >= needed].tolist())
