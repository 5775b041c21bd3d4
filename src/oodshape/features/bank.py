"""Bank: the features of the images with the smallest keys, in one block of memory."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.images.identity import Keys

Array = NDArray[Any]
BANK = 5000  # images that a bank keeps at most
ROUNDING = 0.01  # of the largest value: how far apart two readings of one image may be; two images are further


class Bank:
    """The rows with the smallest keys so far. Banks of parts give that of the whole, in whatever order.

    Rows of equal key that hold the same values are one image and kept once. Where they differ they are two images
    that share a number (parts whose rows were numbered alike): both count.
    """

    def __init__(self, width: int, *, half: bool = False) -> None:
        """An empty bank for rows of the given width, in float16 where they come so."""
        self._keys, self._kept = np.zeros(0, np.uint64), np.empty((BANK, width), np.float16 if half else np.float32)

    def add(self, keys: Keys, rows: Array) -> None:
        """Let some rows in; where there is no room, those with the largest keys make it."""
        if len(self._keys) == BANK:  # spares the sorting of all the others
            below = keys <= self._keys.max()
            keys, rows = keys[below], rows[below]
        before = len(self._keys)
        both = np.concatenate([self._keys, keys])
        stays = np.zeros(len(both), bool)
        stays[self._distinct(both, rows)[:BANK]] = True
        new, left = np.flatnonzero(stays[before:]), np.flatnonzero(~stays[:before])
        places = np.concatenate([left, np.arange(before, before + len(new))])[: max(len(new), len(left))]
        self._keys = np.concatenate([self._keys, np.zeros(max(len(new) - len(left), 0), np.uint64)])
        self._keys[places[: len(new)]], self._kept[places[: len(new)]] = keys[new], rows[new]
        if len(places) > len(new):  # one row took the place of two
            stayed = np.delete(np.arange(len(self._keys)), places[len(new) :])
            self._kept[: len(stayed)], self._keys = self._kept[stayed], self._keys[stayed]

    def _distinct(self, keys: Keys, rows: Array) -> NDArray[np.int64]:
        """The places of the rows, first the bank's and then the new ones, by ascending key; each image once."""
        order = np.argsort(keys, kind="stable")
        same = np.flatnonzero(np.diff(keys[order]) == 0)
        if len(same) == 0:
            return order
        kept: list[NDArray[np.int64]] = []
        starts = np.concatenate([[0], np.flatnonzero(np.diff(keys[order])) + 1, [len(order)]])
        for first, last in pairwise(starts):
            kept.append(order[first:last] if last - first == 1 else self._images(order[first:last], rows))
        return np.concatenate(kept)

    def _images(self, places: NDArray[np.int64], rows: Array) -> NDArray[np.int64]:
        """The places of the different images among rows of one key, in an order of their own."""
        before = len(self._keys)
        found = [self._kept[place] if place < before else rows[place - before] for place in places]
        values = [row.astype(np.float32) for row in found]
        chosen: list[int] = []
        for i in sorted(range(len(places)), key=lambda i: values[i].tolist()):
            if all(np.abs(values[i] - values[j]).max() > ROUNDING * np.abs(values[j]).max() for j in chosen):
                chosen.append(i)
        return places[chosen]

    def result(self) -> tuple[Keys, Array]:
        """([B] keys, ascending, and [B, M] their rows)."""
        order = self._distinct(self._keys, self._kept[:0])
        return self._keys[order], np.asarray(self._kept[order])
