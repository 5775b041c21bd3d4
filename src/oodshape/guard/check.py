"""check: how a guard does on a user's own ID and OOD images, beside a threshold on the softmax."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from oodshape.core.errors import InputError
from oodshape.guard.fitted import Fitted
from oodshape.guard.score import see_given
from oodshape.guard.selective import Selective, selective
from oodshape.guard.set_check import LEVEL, Scores, SetCheck
from oodshape.guard.truth import labels_of
from oodshape.images.in_memory import check_prepared
from oodshape.images.listing import Given, one_by_one
from oodshape.metrics.conformal import rejected_count
from oodshape.metrics.separation import Summary, summary
from oodshape.networks.opening import Source

SAME = 0.5  # the share of known scores above which the ID images are the calibration images


@dataclass(frozen=True, eq=False)
class Check:
    """The ID set and the OOD sets under one guard."""

    guard: Fitted
    inside: SetCheck
    outside: tuple[SetCheck, ...]

    @property
    def rejected(self) -> int:
        """How many ID images are rejected."""
        return len(self.inside.guard.values) - self.inside.guard.accepted

    @property
    def promised(self) -> tuple[int, int] | None:
        """The limits between which the promise puts the number of rejected ID images, 99 times in 100.

        None where nothing is promised, or where each class has a threshold, and a law, of its own.
        """
        detector = self.guard.detector
        if not self.guard.about.held_out or detector.groups is not None:
            return None
        assert detector.calibration is not None
        assert detector.alpha is not None
        return rejected_count(len(detector.calibration), detector.alpha, len(self.inside.guard.values))

    @property
    def known(self) -> float:
        """The share of the ID set's different scores that are scores of the calibration images.

        The same image may differ in its last bits, so scores count as equal when they are far closer than two
        calibration scores usually are.
        """
        scores = self.guard.detector.calibration
        if scores is None:
            return 0.0
        before, now = np.sort(np.asarray(scores, np.float64)), np.unique(self.inside.guard.values).astype(np.float64)
        low, high = np.quantile(before, [0.25, 0.75])
        near = np.minimum(1e-5 * np.abs(now), (high - low) / (100 * len(before)))
        found = np.searchsorted(before, now + near, side="right") > np.searchsorted(before, now - near, side="left")
        return float(found.mean())

    def compared(self, of: SetCheck, *, softmax: bool = False) -> Summary:
        """FPR95, AUROC and the others between the ID set and an OOD set, with bootstrap intervals."""
        sides = (self.inside.softmax, of.softmax) if softmax else (self.inside.guard, of.guard)
        if sides[0] is None or sides[1] is None:
            raise InputError("this guard knows no threshold on the softmax to compare with")
        return summary(sides[0].values, sides[1].values, level=LEVEL)

    @property
    def selective(self) -> Selective | None:
        """How right the network is on the ID images that are accepted; None where no labels are known."""
        return selective(self.inside)

    @property
    def unreadable(self) -> dict[str, str]:
        """Every image that could not be read, with the reason."""
        return {path: why for each in (self.inside, *self.outside) for path, why in each.unreadable.items()}

    def rows(self) -> list[dict[str, Any]]:
        """A row for each detector and set: images, accepted, and for OOD sets FPR95 and AUROC; shares in 0..1."""
        found = []
        detectors = {"guard": False} | ({"softmax": True} if self.inside.softmax is not None else {})
        for detector, softmax in detectors.items():
            for each in (self.inside, *self.outside):
                scores = each.softmax if softmax else each.guard
                assert scores is not None
                role = "id" if each is self.inside else "ood"
                row: dict[str, Any] = {"detector": detector, "set": each.name, "role": role}
                row |= {"images": len(scores.values), "accepted": scores.accepted, "unreadable": len(each.unreadable)}
                row |= {"accepted_share": vars(scores.share)}
                if each is not self.inside:
                    measured = self.compared(each, softmax=softmax)
                    row |= {"fpr95": vars(measured.fpr95), "auroc": vars(measured.auroc)}
                found.append(row)
        return found


def check_guard(
    guard: Fitted,
    source: Source,
    id: Given,
    ood: Mapping[str, Given] | Given,
    *,
    prepared: bool = False,
    batch_size: int = 32,
    workers: int | None = None,
    progress: bool | None = None,
) -> Check:
    """The check of a guard on an open network; `ood` is one set, or several by name."""
    sets = dict(ood) if isinstance(ood, Mapping) else {_name(ood, "OOD", prepared): ood}
    for given in sets.values():
        _name(given, "", prepared)  # what cannot be images is refused before any work
    names = (_name(id, "ID", prepared), *sets)
    inside, *outside = (
        _checked(guard, source, given, name, prepared, batch_size, workers, progress)
        for name, given in zip(names, (id, *sets.values()), strict=True)
    )
    check = Check(guard, inside, tuple(outside))
    if check.known > SAME:
        warnings.warn(
            f"{100 * check.known:.0f} % of the ID scores are scores of the calibration images: these are the images "
            "that set the threshold, so the number of rejected ones proves nothing; give other ID images",
            stacklevel=3,
        )
    return check


def _name(images: Given, otherwise: str, prepared: bool) -> str:
    """What a set is called; what cannot be images is refused."""
    if prepared:
        check_prepared(images)
        return otherwise
    return one_by_one(images).name


def _checked(
    guard: Fitted,
    source: Source,
    images: Given,
    name: str,
    prepared: bool,
    batch_size: int,
    workers: int | None,
    progress: bool | None,
) -> SetCheck:
    parts: list[Any] = []
    others: list[Any] = []
    unreadable: dict[str, str] = {}
    pairs: list[tuple[str, int]] = []
    places: list[int] = []
    listing, seen = None if prepared else one_by_one(images), 0
    how: dict[str, Any] = {"prepared": prepared, "batch_size": batch_size, "workers": workers, "progress": progress}
    for batch in see_given(guard, source, images if listing is None else listing, name=name, baseline=True, **how):
        parts.append(batch.decision)
        others.append(batch.baseline)
        unreadable |= {batch.pairs[row][0]: why for row, why in sorted(batch.errors.items())}
        pairs += [batch.pairs[row] for row in batch.rows]
        places += [seen + row for row in batch.rows]
        seen += len(batch.pairs)
    if sum(len(part.scores) for part in parts) == 0:
        path, why = next(iter(unreadable.items()), (name, "it is empty"))
        raise InputError(f"no image of {name} can be read; {path}: {why}")
    softmax = None if guard.about.baseline is None else _scores(others)
    classes = np.concatenate([part.classes.cpu().numpy() for part in parts])
    labels = labels_of(guard, images, listing, pairs, places)
    return SetCheck(name, _scores(parts), softmax, unreadable, tuple(pairs), classes, labels, listing)


def _scores(parts: list[Any]) -> Scores:
    values = np.concatenate([part.scores.cpu().numpy() for part in parts])
    p_values = np.concatenate([part.p_values.cpu().numpy() for part in parts])
    passed = np.concatenate([part.accepted.cpu().numpy() for part in parts])
    return Scores(values, int(passed.sum()), p_values, passed)
