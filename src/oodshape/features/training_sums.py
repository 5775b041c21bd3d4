"""Training images as sums that can be added, for images whose features are elsewhere or no longer kept.

`TrainingSums` holds what the selection of methods needs: sums over the images to fit on, sums over the images to select
by, and the features of some of the latter. Its size does not depend on the number of images, and two of them can be
added.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property, reduce
from operator import add
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.values import decode_value, encode_value
from oodshape.features.feature_stats import FeatureStats
from oodshape.features.features import Features
from oodshape.features.moments import Moments, as_statistics
from oodshape.images import identity
from oodshape.networks.head import Head, drop_classes

SELECTION = "selection"  # the purpose of the keys that keep images to select by
MOST = 5_000  # images to select by: so many give an AUROC to half a point
LeftOut = NDArray[np.bool_]  # [C]: whether a class is left out of the head
T = TypeVar("T", "Sums", "TrainingSums")


@dataclass(frozen=True, eq=False)
class Sums:
    """Statistics and moments of some images behind one head."""

    head: Head
    stats: FeatureStats
    held: Moments
    near: Sums | None = None  # of the images whose class stays, behind the head without the classes left out

    def __post_init__(self) -> None:
        """Refuse sums of another head, or of other images than each other's."""
        for name, of in (("statistics", self.stats), ("moments", self.held)):
            if of.head != self.head.fingerprint:
                raise InputError(f"the {name} belong to head {of.head}, the head is {self.head.fingerprint}")
        if self.stats.n != self.held.n or len(self.stats.sums) != self.head.width:
            raise InputError(
                f"statistics of {self.stats.n} images and {len(self.stats.sums)} features do not fit moments of "
                f"{self.held.n} images and a head of {self.head.width} features"
            )
        if self.near is not None and len(self.near) > len(self):
            raise InputError(f"{len(self.near)} of {len(self)} images cannot have a class that stays")

    @classmethod
    def of(cls, features: Features, needs: frozenset[str], left_out: LeftOut | None = None) -> Sums:
        """The sums of features, and where classes are left out, of the images of the others."""
        near = None
        if left_out is not None:
            stay = np.flatnonzero(~left_out[features.predictions.cpu().numpy()])
            if len(stay):
                near = Sums.of(features[stay].with_head(drop_classes(features.head, left_out)), needs)
        moments = Moments.of(features, needs, exact=True)  # else sums would hang on the number of parts
        return cls(features.head, features.stats, moments, near)

    def __len__(self) -> int:
        return self.stats.n

    def moments(self, needs: frozenset[str]) -> Moments:
        """Those asked for, which must have been collected."""
        missing = as_statistics(needs) - self.held.parts.keys()
        if missing:
            raise InputError(
                f"the {', '.join(sorted(missing))} of the training images were not collected: collect for this method"
            )
        return self.held

    def __add__(self, other: Sums) -> Sums:
        near = add_if_present(self.near, other.near)
        return Sums(self.head, (self.stats + other.stats).settled(), self.held + other.held, near)


@dataclass(frozen=True, eq=False)
class TrainingSums:
    """Training images as sums: those to fit on, and of a `share` of all, by identity, those to select methods by."""

    share: float  # 0: none are kept to select by
    fitting: Sums | None
    kept: Sums | None
    selection: Features | None  # of those kept, at most MOST, by identity
    labelled: int = 0
    right: int = 0  # of the labelled ones, those whose class the network predicts

    def __post_init__(self) -> None:
        if self.fitting is None and self.kept is None:
            raise InputError("sums of no images")
        if (self.kept is None) != (self.selection is None) or not 0 <= self.right <= self.labelled <= len(self):
            raise InputError(f"of {len(self)} images, {self.labelled} have a label, and {self.right} are right")

    @classmethod
    def of(cls, features: Features, needs: frozenset[str], share: float, left_out: LeftOut | None) -> TrainingSums:
        """The sums of features; each image decides by its identity whether it is kept to select by."""
        kept = identity.pick_share(features.identities, share, purpose=SELECTION)
        groups = [features[np.flatnonzero(rows)] if rows.any() else None for rows in (~kept, kept)]
        fitting, selecting = (None if each is None else Sums.of(each, needs, left_out) for each in groups)
        known = np.zeros(0, bool) if features.labels is None else features.labels.numpy() >= 0
        right = 0 if not known.any() else round((features.accuracy or 0.0) * int(known.sum()))
        return cls(share, fitting, selecting, keep_smallest(groups[1]), int(known.sum()), right)

    def __add__(self, other: TrainingSums) -> TrainingSums:
        return TrainingSums(
            self.share,
            add_if_present(self.fitting, other.fitting),
            add_if_present(self.kept, other.kept),
            keep_smallest(concatenate_rows([self.selection, other.selection])),
            self.labelled + other.labelled,
            self.right + other.right,
        )

    def __len__(self) -> int:
        return sum(len(each) for each in (self.fitting, self.kept) if each is not None)

    @cached_property
    def every(self) -> Sums:
        found = add_if_present(self.fitting, self.kept)
        assert found is not None
        return found

    @property
    def head(self) -> Head:
        return self.every.head

    @property
    def stats(self) -> FeatureStats:
        return self.every.stats

    @property
    def accuracy(self) -> float | None:
        """The share of labelled images whose class is predicted, or None without labels."""
        return self.right / self.labelled if self.labelled else None


def add_if_present(*each: T | None) -> T | None:
    """Add the values that are not None."""
    there = [one for one in each if one is not None]
    return reduce(add, there) if there else None


def concatenate_rows(parts: Iterable[Features | None]) -> Features | None:
    """The rows of all that are not None, in their order, in memory."""
    each = [part for part in parts if part is not None]
    if len(each) < 2:
        return each[0] if each else None
    values = [torch.cat([raw for _, raw in one.chunks()]) for one in each]
    labels = [torch.full((len(one),), -1) if one.labels is None else one.labels for one in each]
    predictions = torch.cat([one.predictions.cpu() for one in each])
    names = np.concatenate([one.identities for one in each])
    return Features(torch.cat(values), each[0].head, torch.cat(labels), predictions, names)


def keep_smallest(rows: Features | None, count: int = MOST, purpose: str = SELECTION) -> Features | None:
    """At most `count` of the rows, those with the smallest keys, in their order."""
    if rows is None or len(rows) <= count:
        return rows
    return rows[identity.smallest(rows.identities, count, 0, purpose)]


Arrays = dict[str, NDArray[Any]]
Said = dict[str, Any] | None


def pack_rows(rows: Features | None, name: str, arrays: Arrays) -> None:
    """Put rows of features into `arrays`."""
    if rows is None:
        return
    arrays[f"{name}.values"] = np.concatenate([raw.float().numpy() for _, raw in rows.chunks()])
    arrays[f"{name}.predictions"] = rows.predictions.cpu().numpy()
    arrays[f"{name}.identities"] = rows.identities
    if rows.labels is not None:
        arrays[f"{name}.labels"] = rows.labels.numpy()


def unpack_rows(name: str, arrays: Arrays, head: Head) -> Features | None:
    """The rows that `pack_rows` put there."""
    if f"{name}.values" not in arrays:
        return None
    values, predictions, identities = (arrays[f"{name}.{what}"] for what in ("values", "predictions", "identities"))
    rows = Features.from_arrays(values, head, arrays.get(f"{name}.labels"), predictions, identities)
    rows.check_finite()
    return rows


def _pack_sums(sums: Sums | None, name: str, arrays: Arrays) -> Said:
    """The numbers of sums; their arrays go into `arrays`."""
    if sums is None:
        return None
    arrays.update({f"{name}.moments.{part}": value for part, value in sums.held.parts.items()})
    near = _pack_sums(sums.near, f"{name}.near", arrays)
    return {"stats": encode_value(sums.stats, arrays, f"{name}.stats"), "near": near}


def _unpack_sums(said: Said, name: str, arrays: Arrays, head: Head, left_out: LeftOut | None) -> Sums | None:
    """The sums that `_pack_sums` put there."""
    if said is None:
        return None
    near = None
    if said["near"] is not None:
        if left_out is None:
            raise InputError("sums without some classes, where none can be left out")
        near = _unpack_sums(said["near"], f"{name}.near", arrays, drop_classes(head, left_out), None)
    stats, moments = decode_value(said["stats"], arrays), f"{name}.moments."
    parts = {key.removeprefix(moments): value for key, value in arrays.items() if key.startswith(moments)}
    return Sums(head, stats, Moments(stats.head, stats.n, parts), near)


def pack_training_sums(summed: TrainingSums | None, arrays: Arrays) -> Said:
    """The numbers of summed images; their arrays go into `arrays`."""
    if summed is None:
        return None
    pack_rows(summed.selection, "selection", arrays)
    groups = {name: _pack_sums(getattr(summed, name), name, arrays) for name in ("fitting", "kept")}
    return {"share": summed.share, "labelled": summed.labelled, "right": summed.right, **groups}


def unpack_training_sums(said: Said, arrays: Arrays, head: Head, left_out: LeftOut | None) -> TrainingSums | None:
    """What `pack_training_sums` put there."""
    if said is None:
        return None
    fitting, kept = (_unpack_sums(said[name], name, arrays, head, left_out) for name in ("fitting", "kept"))
    selection = unpack_rows("selection", arrays, head)
    return TrainingSums(said["share"], fitting, kept, selection, said["labelled"], said["right"])
