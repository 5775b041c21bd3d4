"""check: how a guard does on a user's own ID and OOD images, next to a threshold on the softmax."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.options import RunOptions
from oodshape.guard.fit.prints import Prints, find_known, project
from oodshape.guard.fitted import Fitted
from oodshape.guard.scoring.score_images import score_given
from oodshape.images.duplicates import find_copies_in_sketch, find_repeated
from oodshape.images.sources.image_set import ImageSet, Subset
from oodshape.images.sources.memory import check_prepared
from oodshape.images.sources.open_images import Given, ImageSource, StandardInput, open_images, stream_images
from oodshape.metrics.conformal import rejected_count_limits
from oodshape.metrics.detection import Estimate
from oodshape.metrics.registry import DEFAULT_METRICS, measure
from oodshape.networks.loading import OpenNet

LEVEL = 0.95  # of every interval but the promise's


@dataclass(frozen=True, eq=False)
class SetScores:
    """One detector's scores of a set, and how many it accepts."""

    values: NDArray[np.float32]
    p_values: NDArray[np.float64]
    passed: NDArray[np.bool_]  # whether each is accepted

    @property
    def accepted(self) -> int:
        return int(self.passed.sum())

    @property
    def share(self) -> Estimate:
        """The share accepted, with its exact (Clopper-Pearson) interval."""
        return compute_exact_rate(self.accepted, len(self.values))


@dataclass(frozen=True, eq=False)
class SetCheck:
    """One set of images: the guard's scores, those of the softmax, and what could not be read."""

    name: str
    guard: SetScores
    softmax: SetScores | None  # None: the guard knows no threshold on the softmax
    unreadable: dict[str, str]  # path -> why
    # image by image, of those that could be read
    pairs: tuple[tuple[str, int], ...]  # as a listing names them
    classes: NDArray[np.int64]  # predicted
    listing: ImageSource | None  # where the images can be read again; None for prepared tensors
    prints: Prints

    @property
    def judged(self) -> dict[str, SetScores]:
        """The scores by detector: the guard, and the softmax where the guard knows it."""
        return {"guard": self.guard} | ({} if self.softmax is None else {"softmax": self.softmax})


def compute_exact_rate(count: int, of: int) -> Estimate:
    """A share with its exact (Clopper-Pearson) confidence interval.

    >>> round(compute_exact_rate(0, 10).high, 6)  # 1 - (0.05 / 2) ** (1 / 10)
    0.308497
    """
    from scipy.stats import binomtest

    low, high = binomtest(count, of).proportion_ci(LEVEL, "exact")
    return Estimate(count / of, float(low), float(high))


SAME = 0.5  # the share of known scores above which images are the calibration images


@dataclass(frozen=True, eq=False)
class Check:
    """The ID set and the OOD sets under one guard."""

    guard: Fitted
    inside: SetCheck
    outside: tuple[SetCheck, ...]
    used: int = 0  # ID images that fit or calibrate used, as far as the guard can tell

    @property
    def rejected(self) -> int:
        """How many ID images are rejected."""
        return len(self.inside.guard.values) - self.inside.guard.accepted

    @property
    def guaranteed(self) -> tuple[int, int] | None:
        """The 99 % range of the number of rejected ID images under the guarantee.

        None without a guarantee, or with a threshold per class, which has a distribution of its own.
        """
        detector = self.guard.detector
        if not self.guard.about.held_out or detector.groups is not None:
            return None
        scores, alpha = detector.held_out()
        return rejected_count_limits(len(scores), alpha, len(self.inside.guard.values))

    def compared(self, of: SetCheck, *, softmax: bool = False) -> dict[str, Estimate]:
        """Every metric between the ID set and an OOD set by its name, with bootstrap intervals."""
        sides = (self.inside.softmax, of.softmax) if softmax else (self.inside.guard, of.guard)
        if sides[0] is None or sides[1] is None:
            raise InputError("this guard knows no threshold on the softmax to compare with")
        return measure(sides[0].values, {of.name: sides[1].values}, level=LEVEL)[1]

    @property
    def unreadable(self) -> dict[str, str]:
        """Every image that could not be read, with the reason."""
        return {path: why for each in (self.inside, *self.outside) for path, why in each.unreadable.items()}

    def rows(self) -> list[dict[str, Any]]:
        """A row for each detector and set: images, accepted, and for OOD sets FPR95 and AUROC; shares in 0..1."""
        found = []
        for detector in self.inside.judged:
            for each in (self.inside, *self.outside):
                scores = each.judged[detector]
                role = "id" if each is self.inside else "ood"
                row: dict[str, Any] = {"detector": detector, "set": each.name, "role": role}
                row |= {"images": len(scores.values), "accepted": scores.accepted, "unreadable": len(each.unreadable)}
                row |= {"accepted_share": vars(scores.share)}
                if each is not self.inside:
                    measured = self.compared(each, softmax=detector == "softmax")
                    row |= {metric.name: vars(measured[metric.name]) for metric in DEFAULT_METRICS}
                found.append(row)
        return found


def check_guard(
    guard: Fitted,
    source: OpenNet,
    id: Given,
    ood: Mapping[str, Given] | Given,
    run: RunOptions = RunOptions(),
    *,
    prepared: bool = False,
) -> Check:
    """Check a guard on an open network; `ood` is one set, or several by name."""
    sets = dict(ood) if isinstance(ood, Mapping) else {_name(ood, "OOD", prepared): ood}
    for given in sets.values():
        _name(given, "", prepared)  # what cannot be images is refused before any work
    inside = _checked(guard, source, id, _name(id, "ID", prepared), run, prepared)
    outside = [_checked(guard, source, given, name, run, prepared) for name, given in sets.items()]
    check = Check(guard, inside, tuple(outside))
    check = replace(check, used=_count_used(check, id))
    if check.used:
        warnings.warn(
            f"{check.used:,} of the {len(inside.pairs):,} ID images are known to have been used to fit or calibrate "
            "this guard, so the number of rejected ones proves nothing; give other ID images",
            stacklevel=3,
        )
    _warn_of_copies(check, [id, *sets.values()])
    return check


def _reopen(checked: SetCheck, given: Given) -> ImageSet | None:
    """The images of a set, where they can be read again."""
    listing = checked.listing
    if listing is None or isinstance(listing, StandardInput):
        return None
    return open_images(given if isinstance(given, Subset) else listing)


def _warn_of_copies(check: Check, given: list[Given]) -> None:
    """Warn of images that are in a set twice, or that are ID and OOD images at once."""
    for checked, images in zip((check.inside, *check.outside), given, strict=True):
        opened = _reopen(checked, images)
        again = 0 if opened is None else len(find_repeated(opened))
        if again:
            warnings.warn(
                f"{again:,} of the {len(checked.pairs):,} images of {checked.name} are copies of others, but count as "
                "new images: intervals are too narrow; give each image once",
                stacklevel=4,
            )
    for checked in check.outside:
        shared = max(len(find_known(checked.prints, check.inside.prints)), _count_recognised(check, checked))
        if shared:
            warnings.warn(
                f"{shared:,} of the {len(checked.pairs):,} OOD images of {checked.name} are ID images too, given here "
                "or used to fit or calibrate this guard; give different images",
                stacklevel=4,
            )


def _count_used(check: Check, id: Given) -> int:
    """How many ID images are recognised, or are in the guard's sketches."""
    about, unnamed, images = check.guard.about, _count_recognised(check, check.inside), _reopen(check.inside, id)
    if images is None:
        return unnamed
    sketches = [each for each in (about.trained_on, about.calibrated_on, about.selection) if each is not None]
    sketch = np.unique(np.concatenate([np.empty(0, np.uint64), *sketches]))
    return max(unnamed, len(find_copies_in_sketch(images, sketch)))


def _count_recognised(check: Check, of: SetCheck) -> int:
    """How many images have prints that the guard holds, or its calibration scores, where most are among these.

    The same image may differ in its last bits, so scores count as equal when they are far closer than two calibration
    scores usually are.
    """
    before = check.guard.detector.held_out()[0].astype(np.float64)  # ascending
    now = np.unique(of.guard.values).astype(np.float64)
    low, high = np.quantile(before, [0.25, 0.75])
    near = np.minimum(1e-5 * np.abs(now), (high - low) / (100 * len(before)))
    found = np.searchsorted(before, now + near, side="right") > np.searchsorted(before, now - near, side="left")
    scored = math.ceil(found.mean() * len(of.pairs)) if found.mean() > SAME else 0
    return max(scored, len(find_known(of.prints, check.guard.about.prints)))


def _name(images: Given, otherwise: str, prepared: bool) -> str:
    """The name of a set; inputs that cannot be images are refused."""
    if prepared:
        check_prepared(images)
        return otherwise
    return stream_images(images).name


def _checked(guard: Fitted, source: OpenNet, images: Given, name: str, run: RunOptions, prepared: bool) -> SetCheck:
    parts: list[Any] = []
    others: list[Any] = []
    prints: list[Prints] = []
    unreadable: dict[str, str] = {}
    pairs: list[tuple[str, int]] = []
    listing = None if prepared else stream_images(images)
    given = images if listing is None else listing
    for batch in score_given(guard, source, given, run, prepared=prepared, name=name):
        parts.append(batch.decision)
        if batch.outputs is not None:
            prints.append(project(batch.outputs.features))
        if guard.about.baseline is not None and batch.outputs is not None:
            others.append(guard.about.baseline.decide(batch.outputs))
        unreadable |= {batch.pairs[row][0]: why for row, why in sorted(batch.errors.items())}
        pairs += [batch.pairs[row] for row in batch.rows]
    if sum(len(part.scores) for part in parts) == 0:
        path, why = next(iter(unreadable.items()), (name, "it is empty"))
        raise InputError(f"no image of {name} can be read; {path}: {why}")
    softmax = None if guard.about.baseline is None else _scores(others)
    classes = np.concatenate([part.classes.cpu().numpy() for part in parts])
    return SetCheck(name, _scores(parts), softmax, unreadable, tuple(pairs), classes, listing, np.concatenate(prints))


def _scores(parts: list[Any]) -> SetScores:
    columns = ([getattr(part, name).cpu().numpy() for part in parts] for name in ("scores", "p_values", "accepted"))
    return SetScores(*map(np.concatenate, columns))
