"""Auto: selects methods from ID data alone, by proxy OOD sets, and fuses the best.

There are three proxy sets: scrambled ID images, images of classes that are held out of the head, and crossed features.
Noise and constant images select nothing: where the fusion accepts them, a filter against them is added.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Annotated, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Fraction
from oodshape.features.features import Features
from oodshape.features.moments import Statistic
from oodshape.features.proxy import cross_features
from oodshape.features.training_sums import MOST, SELECTION, Sums, TrainingSums
from oodshape.images import identity
from oodshape.methods.detector import Detector, Method
from oodshape.methods.fit_all import fit_each, score_each
from oodshape.methods.fusion import SCRAMBLED, Component, Filter, Fusion
from oodshape.methods.held_out_classes import HeldOutClasses
from oodshape.methods.records import RECORDS
from oodshape.methods.registry import find_method
from oodshape.methods.scores.mahalanobis import Clusters, Contrast, Unlike
from oodshape.methods.slots import ScoreRecipe
from oodshape.methods.training_set import Training
from oodshape.metrics.detection import auroc

T = TypeVar("T")
FALLBACK = "optfs"
# one method per idea: near copies of one score would displace the others
CANDIDATES = tuple(record.id for record in RECORDS.values() if record.candidate)
SIGNED, SIGNED_FUSE = "cop", 2  # where features have both signs, CoP is a candidate, and so many are fused
FEWEST = 10  # selection images: the lowest tenth must hold one
MEMORISED = 0.99  # the accuracy on training images from which they are not representative of others
SATURATED, SPREAD = 0.99, 0.01  # a proxy set with a larger median AUROC, or a smaller interquartile range, is saturated
CROSSED = "crossed features"
DISTANCES = "mds"  # whose distances the filters use: the length of features counts
NOISE, CONSTANT = "noise", "constant images"
# what filters are against, its place among the synthetic images, the score, its weight in the sum, the limit, and the
# limit if noise is still accepted: smooth OOD images resemble constant ones, none noise
FILTERS: tuple[tuple[str, int, type[Contrast | Unlike], float, float, float], ...]
FILTERS = (
    (NOISE, 0, Contrast, 0.0, 0.05, 0.2),
    (CONSTANT, 1, Unlike, 2.0, 0.08, 0.02),
    (CONSTANT, 1, Contrast, 0.0, 0.03, 0.03),
)
CONTRASTED = 1200  # ID images that `Contrast` is fitted on
UNLIKELY, FEW = 0.02, 0.02  # filters are added if more than FEW images of a kind have a p-value of at least UNLIKELY
ALPHA = 0.05  # the false rejection rate at which the limits of filters are chosen
NO_IMAGES = (
    "no scrambled images: extract them with proxy_features(classifier, images, preprocessing) and pass fit(train, "
    "proxy=...)"
)


class Auto(ScoreRecipe):
    """Fuse the `fuse` candidates with the largest mean AUROC over three proxy OOD sets, and those in `always`.

    The candidates are compared on a part of the training images that is excluded from fitting, and the scores there
    turn candidates' scores into p-values. ID images passed as `held_out` are used instead, and all training images fit.
    The proxy sets are scrambled ID images, if given (`proxy_features`), images of a quarter of the classes, held out of
    the head (`HeldOutClasses`), and crossed features (`cross_features`). A set that cannot be made is skipped; a
    saturated one, on which candidates hardly differ, has weight 0; the record says so. Without any proxy set the method
    is OptFS, with a warning. A candidate that refuses the features is left out.

    If `proxy` holds noise and constant images after the scrambled ones, and the fusion accepts more than a few of
    either, filters against both are added (`Contrast`, `Unlike`).

    >>> Auto(candidates=("msp", "energy"), fuse=1, always=()).fuse
    1

    Args:
        candidates: Ids of methods; empty: `CANDIDATES`.
        fuse: Number of candidates to fuse; 1 uses the best candidate as it is. At most 2 are fused if features have
            both signs and `candidates` is empty (`adapt_to_signs`).
        share: Fraction of the training images to select by.
        always: Candidates that are fused whatever their AUROC: GEN keeps the fusion near the network's own
            probabilities, MDS++ rejects inputs that are far from all training features.
    """

    wants_proxy = True

    candidates: tuple[str, ...] = ()  # ids of methods; none: CANDIDATES
    fuse: Annotated[int, AtLeast(1)] = 5
    share: Annotated[float, Fraction()] = 0.25
    always: tuple[str, ...] = ("gen", "mds++")

    def __post_init__(self) -> None:
        object.__setattr__(self, "candidates", tuple(self.candidates))
        object.__setattr__(self, "always", tuple(self.always))

    @property
    def collects(self) -> frozenset[Statistic]:
        every = (*self.methods().values(), find_method(DISTANCES).unlabelled())
        return frozenset[Statistic]().union(*(method.collects for method in every))

    @property
    def keeps(self) -> float:
        return self.share

    def methods(self) -> dict[str, Method]:
        """Return the candidates, with predicted classes, because proxy images have no labels.

        Returns:
            Methods by name.
        """
        return {name: find_method(name).unlabelled() for name in self.candidates or CANDIDATES}

    def adapt_to_signs(self, *, signed: bool) -> Auto:
        """Fuse fewer candidates, and CoP, where features have both signs: most candidates are made for those of a ReLU.

        Args:
            signed: Whether features have both signs.

        Returns:
            This recipe, changed if features are signed and no candidates were given.
        """
        if self.candidates or not signed:
            return self
        fuse = min(self.fuse, SIGNED_FUSE)
        return replace(self, candidates=(*CANDIDATES, SIGNED), fuse=fuse, always=(*self.always, SIGNED))

    @property
    def exportable(self) -> bool:
        """Whether every candidate is, so that any selection can be."""
        return all(method.exportable for method in self.methods().values())

    def fit(self, train: Training) -> Fusion:
        """Select and fuse candidates.

        Args:
            train: The training set, with its proxy sets.

        Returns:
            The fitted fusion.
        """
        fitting, selection = _parts(train, self.share)
        if len(selection) < FEWEST:
            return _fallback(
                train,
                f"selects by {self.share:g} of the training images and needs at least {FEWEST} there, got "
                f"{len(selection)} of {train.n}; give more images",
            )
        recipe = self.adapt_to_signs(signed=train.signed)
        tried = try_on_proxies(recipe.methods(), fitting, selection, train.proxy)
        notes = (*_memorised(train, selection), *tried.notes)
        if not tried.proxies:
            return _fallback(train, f"has no proxy set to select by: {'; '.join(notes)}")
        always = recipe.always if recipe.fuse > 1 else ()
        fused = [best for place, (best, _) in enumerate(tried.ranking) if place < recipe.fuse or best in always]
        contrasted = partial(contrast_images, train, self.share)
        fusion = fuse_tried(tried, fused, fitting, selection, train.proxy[1:], contrasted)
        values = tuple(tried.aurocs[name] for name, _ in tried.ranking)
        fusion = replace(fusion, ranking=tried.ranking, proxies=tried.proxies, values=values, notes=notes)
        return replace(fusion, best=min(recipe.fuse, len(fused)))


@dataclass(frozen=True)
class Trials:
    """Candidates that were fitted and scored on the selection images, and their AUROCs on the proxy sets."""

    detectors: dict[str, Detector]
    inside: dict[str, Tensor]  # scores of the selection images
    proxies: tuple[str, ...]  # descriptions of the proxy sets
    aurocs: dict[str, tuple[float, ...]]  # on each proxy set
    notes: tuple[str, ...]

    @cached_property
    def ranking(self) -> tuple[tuple[str, float], ...]:
        """Every candidate with its mean AUROC over the proxy sets that are not saturated, best first."""
        weights = ~self.saturated / (~self.saturated).sum()
        means = [(name, float(np.dot(weights, row))) for name, row in self.aurocs.items()]
        return tuple(sorted(means, key=lambda item: -item[1]))

    @cached_property
    def saturated(self) -> NDArray[np.bool_]:
        """[P]: which proxy sets hardly differentiate the candidates; none if that holds for all of them."""
        low, median, high = np.quantile(list(self.aurocs.values()), [0.25, 0.5, 0.75], axis=0)
        found = (median > SATURATED) | (high - low < SPREAD)
        return np.asarray(found & ~found.all())


def try_on_proxies(
    methods: Mapping[str, Method], fitting: Features | Sums, selection: Features, proxy: Sequence[Features]
) -> Trials:
    """Fit every method and compare the selection images with the proxy sets; methods that refuse are left out.

    The first of `proxy` are scrambled images.
    """
    proxies: dict[str, dict[str, float]] = {}
    given, notes = {SCRAMBLED: proxy[0]} if proxy else {}, [] if proxy else [NO_IMAGES]
    needs = frozenset[Statistic]().union(*(method.needs for method in methods.values()))
    try:
        near = HeldOutClasses.of(fitting, selection, needs)
        proxies[str(near)] = near.aurocs(methods)
    except InputError as error:
        notes.append(f"no classes were held out: {error}")
    try:
        given[CROSSED] = cross_features(selection)
    except InputError as error:
        notes.append(f"no crossed features: {error}")
    detectors, refused = _separate(dict(fit_each(methods, fitting)))
    inside, more = _separate(score_each(detectors, selection))
    refused |= more
    for what, images in given.items():
        outside, more = _separate(score_each({name: detectors[name] for name in inside}, images))
        refused |= more
        proxies[what] = {name: auroc(inside[name], scores) for name, scores in outside.items()}
    names = [name for name in methods if name not in refused]
    if not names:
        raise list(refused.values())[-1] if refused else InputError("auto has no candidates")
    aurocs = {name: tuple(each[name] for each in proxies.values()) for name in names}
    tried = Trials(detectors, inside, tuple(proxies), aurocs, tuple(notes))
    saturated = [what for what, is_so in zip(proxies, tried.saturated, strict=True) if is_so] if proxies else []
    return replace(tried, notes=(*notes, *(f"{what}: saturated, weight 0" for what in saturated)))


def fuse_tried(
    tried: Trials,
    names: Sequence[str],
    fitting: Features | Sums,
    selection: Features,
    synthetic: Sequence[Features],
    contrasted: Callable[[], Features | None] = lambda: None,
) -> Fusion:
    """Fuse candidates, with filters against noise and constant images if the fusion accepts more than a few of either.

    A filter also rejects ID images, which lowers the threshold: what the components reject just so needs one then.
    `Contrast` is fitted on `contrasted`, or on selection images, each of which is left out of its own score. If more
    than a few noise images, left out in the same way, are still accepted, the filter against noise gets a larger limit.
    """
    parts = tuple(Component.of_detector(name, tried.detectors[name], tried.inside[name]) for name in names)
    scores, filters = [tried.inside[name] for name in names], []
    fusion = Fusion.of_components(parts, scores)
    if len(names) == 1 or not any(_accepts(fusion, tried, images) for images in synthetic):
        return fusion
    try:
        base = find_method(DISTANCES).unlabelled().fit(fitting)
    except InputError:  # features that have no covariance
        return fusion
    assert isinstance(base.scorer, Clusters)
    training = contrasted()
    inside = selection if training is None else training
    rows = identity.smallest(inside.identities, CONTRASTED, 0, "contrast")
    noise = [tried.detectors[name].score(synthetic[0]) for name in names]
    for name, place, score, weight, limit, _ in FILTERS:
        scorer, left_out = score.of_images(base.scorer, synthetic[place], inside[rows])
        detector = replace(base, scorer=scorer)
        found, of_noise = detector.score(selection), detector.score(synthetic[0])
        if left_out is not None and training is None:
            found[rows] = left_out[: len(rows)].to(found.device)
        if left_out is not None and name == NOISE:
            of_noise = left_out[len(rows) :].to(found.device)
        scores.append(found)
        noise.append(of_noise)
        filters.append(Filter.of_detector(name, detector, scores[-1], weight=weight, limit=limit))
    fusion = Fusion.of_components(parts, scores, tuple(filters))
    of_selection, of_noise = (fusion.fuse(fusion.each_log_p(each)) for each in (scores, noise))
    if float((of_noise >= of_selection.quantile(ALPHA)).double().mean()) <= FEW:
        return fusion
    strict = tuple(replace(one, limit=limit) for one, (*_, limit) in zip(filters, FILTERS, strict=True))
    return replace(fusion, filters=strict)


def _accepts(fusion: Fusion, tried: Trials, images: Features) -> bool:
    """Whether a fusion accepts more than a few images of a kind."""
    each = [part.log_p(tried.detectors[part.name].score(images)) for part in fusion.components]
    return float((fusion.fuse(torch.stack(each)) >= math.log(UNLIKELY)).double().mean()) > FEW


def _parts(train: Training, share: float) -> tuple[Features | Sums, Features]:
    """(images to fit on, images to select by), with the same head as the proxy set."""
    data = train.features if train.summed is None else train.summed
    head = data.head
    for images, what in (
        (train.proxy, "proxy set"),
        (() if train.held_out is None else (train.held_out,), "held-out part"),
    ):
        for part in images:
            if part.head.fingerprint != head.fingerprint:
                raise InputError(
                    f"the {what} comes from head {part.head.fingerprint}, the training images from head "
                    f"{head.fingerprint}; extract both through the same classifier"
                )
    if train.held_out is not None:
        return data if isinstance(data, Features) else data.every, train.held_out
    return split_selection(data, share) if isinstance(data, Features) else _collected_parts(data, share)


def contrast_images(train: Training, share: float) -> Features | None:
    """Training images for `Contrast`, the same for any number of parts; None if few, or if they select."""
    if train.held_out is None or share * train.n < FEWEST:
        return None
    return train.features[_selected_rows(train.features, share)[1]] if train.summed is None else train.summed.selection


def _collected_parts(data: TrainingSums, share: float) -> tuple[Sums, Features]:
    """The two parts of images that were summed: as `split_selection` makes them of many images."""
    if data.share != share:
        raise InputError(
            f"the images were collected to select by a share of {data.share:g}, not {share:g}; collect again"
        )
    if data.fitting is None or data.selection is None or len(data.selection) < FEWEST:
        raise InputError(f"of {len(data)} images too few are left to fit on or to select by; collect more images")
    return data.fitting, data.selection


def _separate(found: Mapping[str, T | InputError]) -> tuple[dict[str, T], dict[str, InputError]]:
    """(results, refusals): a candidate that refuses these features is left out."""
    refused = {name: value for name, value in found.items() if isinstance(value, InputError)}
    return {name: value for name, value in found.items() if not isinstance(value, InputError)}, refused


def _memorised(train: Training, selection: Features) -> list[str]:
    """A note if methods are selected by training images that the network has memorised."""
    accuracy = selection.accuracy
    if train.held_out is not None or accuracy is None or accuracy < MEMORISED:
        return []
    return [
        f"the network has memorised the training images that select the methods (accuracy {100 * accuracy:.1f} %): "
        "give more calibration images, which then select"
    ]


def split_selection(train: Features, share: float) -> tuple[Features, Features]:
    """(fitting part, selection part): about a fraction `share` is in the second, by identity (`identity.hold_out`).

    If that is FEWEST images or fewer, it is exactly as many; of more than MOST, the rest is in neither part.
    """
    held, rows = _selected_rows(train, share)
    return train[np.flatnonzero(~held)], train[rows]


def _selected_rows(train: Features, share: float) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
    """([N] which images are not fitted on, the places of those to select by)."""
    fewest = int(share * len(train))
    if fewest == 0:
        raise InputError(f"a share of {share:g} of {len(train)} training images is none; auto needs some to select by")
    held = np.zeros(len(train), bool)
    if fewest <= FEWEST:
        held[identity.smallest(train.identities, fewest, 0, SELECTION)] = True
    else:
        held = identity.hold_out(train.identities, share, purpose=SELECTION, fewest=FEWEST)
    rows = np.flatnonzero(held)
    return held, rows[identity.smallest(train.identities[rows], MOST, 0, SELECTION)]


def _fallback(train: Training, why: str) -> Fusion:
    """OptFS on all images, and a warning that says why."""
    warnings.warn(f"auto {why}. It falls back to {FALLBACK}.", stacklevel=4)
    detector = find_method(FALLBACK).fit(train.features)
    scores = detector.score(train.features)
    return Fusion((Component.of_detector(FALLBACK, detector, scores),), notes=(f"auto {why}",))
