"""Apart: the sums of some images, and of those among them whose class stays when classes are left out of the head.

Both come from one pass that multiplies by the head once. An image of a class that stays has the same class without the
others, so that sums by class are rows of those of all. Products of pairs of features are made of the images that stay
first, and those of the others join them later: there is room for one set of them only.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch

from oodshape.core.machine import give_back
from oodshape.features.bank import BANK, Bank
from oodshape.features.chunks import check_finite
from oodshape.features.features import Features
from oodshape.features.moments import SEED, Moments
from oodshape.features.running_sums import BY_LABEL, NAMES, Array, RunningSums
from oodshape.features.statistics import FeatureStats, RunningStatistics
from oodshape.features.sums import LeftOut, without
from oodshape.images import identity

BY_CLASS = frozenset(["counts", "class_sums", "unit_class_sums"])
BY_HEAD = frozenset(["softmax_sums", "energy"])  # of other probabilities without the classes left out
BY_ROW = frozenset(["squares", "profile"])


class Apart:
    """The sums that `needs` asks for, of all images and of those whose class stays.

    >>> train = Features.from_arrays(np.eye(4)[np.arange(8) % 4], (np.eye(4), None))
    >>> apart = Apart(train, frozenset(["counts", "squares"]), np.arange(4) == 3)
    >>> apart.inside().moments(frozenset(["squares"])).parts["squares"].tolist()
    [2.0, 2.0, 2.0, 0.0]
    >>> apart.whole().moments(frozenset(["squares"])).parts["squares"].tolist()
    [2.0, 2.0, 2.0, 2.0]
    """

    def __init__(self, features: Features, needs: frozenset[str], left_out: LeftOut) -> None:
        """Go over the features once."""
        stays = ~left_out
        self.features, self.needs = features, needs
        head, self.kept = features.head.to("cpu"), torch.from_numpy(np.flatnonzero(stays))
        self.smaller = without(features.head, left_out)
        smaller, n = self.smaller.to("cpu"), len(features)
        self._all = RunningSums(needs & (BY_CLASS | BY_HEAD | BY_LABEL), head, n)
        # half of the images at most are left out: what hangs on their number is decided for those that stay
        self._inside = RunningSums(needs & (NAMES - BY_CLASS), smaller, n // 2)
        self._outside = RunningSums(needs & BY_ROW, head, n)
        statistics = [RunningStatistics(part, n, half=features.half) for part in (smaller, head)]
        number, inside = torch.from_numpy(np.cumsum(stays) - 1), torch.from_numpy(stays)
        for first, raw, predicted, seen in features.looked_at():
            check_finite(raw, first)
            stored, classes = raw.cpu(), predicted.cpu()
            z = stored.float()
            logits = None if not needs & BY_HEAD else head.logits(z) if seen is None else seen.cpu()
            labels = None if features.labels is None else features.labels[first : first + len(z)]
            self._all.add(z, classes, logits, labels)
            stay, gone = (side.nonzero()[:, 0] for side in (inside[classes], ~inside[classes]))
            fewer = None if logits is None else logits[stay[:, None], self.kept]
            self._inside.add(z[stay], number[classes[stay]], fewer)
            self._outside.add(z[gone], classes[gone])
            statistics[0].add(stored[stay], number[classes[stay]])
            statistics[1].add(stored[gone], classes[gone])
        self._statistics = [running.result() for running in statistics if running.n]
        self.gone = ~stays[features.predictions.cpu().numpy()]

    def inside(self) -> Features:
        """The images whose class stays, behind the head without the others, with their sums; use it before `whole`."""
        images = self.features[np.flatnonzero(~self.gone)].with_head(self.smaller)
        parts = {name: total[self.kept.numpy()] for name, total in self._all.totals.items() if name in BY_CLASS}
        images.keep(self._statistics[0], self._moments(images, parts | self._inside.parts()))
        return images

    def whole(self) -> Features:
        """All images with their sums."""
        give_back()  # what was made of those inside
        if self.gone.any() and self._inside.products:
            for _, raw in self.features[np.flatnonzero(self.gone)].chunks():
                self._inside.add_products(raw.float().cpu())
            self._inside.room = None
        parts = dict(self._all.totals)
        parts |= {name: self._inside.totals[name] + total for name, total in self._outside.totals.items()}
        parts |= {name: products.result() for name, products in self._inside.products.items()}
        self.features.keep(self._all_statistics(), self._moments(self.features, parts))
        return self.features

    def _all_statistics(self) -> FeatureStats:
        both = [replace(side, head=self.features.head.fingerprint) for side in self._statistics]
        return both[0] if len(both) == 1 else both[0] + both[1]

    def _moments(self, images: Features, parts: dict[str, Array]) -> Moments:
        if "bank" in self.needs:
            parts["bank_keys"], parts["bank"] = bank_of(images)
        return Moments(images.head.fingerprint, len(images), parts)


def bank_of(images: Features) -> tuple[identity.Keys, Array]:
    """The bank that a pass over the images gives, from the images in it alone."""
    keys = identity.keys(images.identities, SEED, "bank")
    order, bank = np.argsort(keys, kind="stable"), Bank(images.width, half=images.half)
    for start in range(0, len(order), BANK):
        if bank.last is not None and keys[order[start]] > bank.last:
            break
        rows = np.sort(order[start : start + BANK])
        for first, raw in images[rows].chunks():
            bank.add(keys[rows[first : first + len(raw)]], raw.cpu().numpy())
    return bank.result()
