"""Moments: further sums over the training features, each collected only when a method asks for it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape import files
from oodshape.errors import InputError
from oodshape.features import Features, check_finite
from oodshape.outputs import Head
from oodshape.rows import row_keys, unit

Array = NDArray[Any]
BANK = 5000  # images that a bank keeps at most
SEED = 0
ROWS = 512  # rows that are summed at once, in float64


class _Rows:
    """Some rows in float64, with what the head says about them."""

    def __init__(self, z: Tensor, classes: Tensor, head: Head) -> None:
        self.z, self.classes, self.head = z, classes, head

    @cached_property
    def double(self) -> Tensor:
        return self.z.double()

    @cached_property
    def unit(self) -> Tensor:
        return unit(self.double)

    @cached_property
    def logits(self) -> Tensor:
        return self.head.logits(self.z).double()

    def by_class(self, values: Tensor) -> Tensor:
        """[C, ...]: the sum of the rows of each predicted class."""
        sums = torch.zeros(self.head.classes, *values.shape[1:], dtype=torch.float64)
        return sums.index_add_(0, self.classes, values)


# name -> what a run of rows adds to the sum; C classes are those the network predicts
SUMS: dict[str, Callable[[_Rows], Tensor]] = {
    "counts": lambda rows: rows.by_class(torch.ones(len(rows.z), dtype=torch.float64)),  # [C]
    "class_sums": lambda rows: rows.by_class(rows.double),  # [C, M]
    "unit_class_sums": lambda rows: rows.by_class(rows.unit),  # [C, M], of features of length 1
    "softmax_sums": lambda rows: rows.by_class(rows.logits.softmax(dim=1)),  # [C, C]
    "squares": lambda rows: rows.double.square().sum(dim=0),  # [M]
    "second": lambda rows: rows.double.T @ rows.double,  # [M, M]
    "unit_second": lambda rows: rows.unit.T @ rows.unit,  # [M, M]
    "profile": lambda rows: rows.z.sort(dim=1).values.double().sum(dim=0),  # [M]: sorted rows
    "energy": lambda rows: torch.logsumexp(rows.logits, dim=1).sum()[None],  # [1]
}
NAMES = frozenset([*SUMS, "bank"])


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over features by name, and a bank of at most 5,000 of them; two of them add up.

    Sums are float64. The bank holds the images with the smallest keys, and a key is a seeded hash of the features
    themselves: a random sample without replacement, the same in whatever order parts are added.

    >>> features = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> Moments.of(features, frozenset(["counts", "profile"])).parts["profile"].tolist()
    [1.0, 4.0]
    """

    head: str  # the fingerprint of the head that predicted
    n: int
    parts: dict[str, Array]

    @classmethod
    def of(cls, features: Features, needs: frozenset[str]) -> Moments:
        """The parts asked for, in one pass."""
        if needs - NAMES:
            raise InputError(f"no part is called {min(needs - NAMES)!r}; there are {', '.join(sorted(NAMES))}")
        head = features.head.to("cpu")
        parts: dict[str, Array] = {}
        for first, raw in features.chunks() if needs else ():
            check_finite(raw, first)
            z, classes = raw.float().cpu(), features.predictions[first : first + len(raw)].cpu()
            if "bank" in needs:
                parts["bank"] = _smallest(np.concatenate([parts["bank"], z.numpy()]) if "bank" in parts else z.numpy())
            for start in range(0, len(z), ROWS):
                rows = _Rows(z[start : start + ROWS], classes[start : start + ROWS], head)
                for name in sorted(needs & SUMS.keys()):
                    more = SUMS[name](rows).numpy()
                    parts[name] = np.add(parts[name], more, out=parts[name]) if name in parts else more
        return cls(head.fingerprint, len(features), parts)

    def __add__(self, other: Moments) -> Moments:
        """The moments of both data sets together; only parts that both hold, refused across heads."""
        if self.head != other.head:
            raise InputError(f"moments of different heads do not add up: {self.head} and {other.head}")
        shared = [name for name in self.parts if name in other.parts]
        parts = {name: _added(name, self.parts[name], other.parts[name]) for name in shared}
        return Moments(self.head, self.n + other.n, parts)

    def beside(self, other: Moments) -> Moments:
        """The parts of both, which are of the same features."""
        return replace(self, parts={**self.parts, **other.parts})

    def save(self, path: str | Path) -> None:
        """Write the moments to one safetensors file."""
        files.save(path, "moments", {"head": self.head, "n": self.n}, self.parts)

    @classmethod
    def load(cls, path: str | Path) -> Moments:
        """The moments that `save` wrote."""
        header, parts = files.load(path, "moments")
        return cls(header["head"], header["n"], parts)

    def bank(self) -> Tensor:
        """[B, M] float32: the images of the bank."""
        return torch.tensor(self.parts["bank"])

    def means(self, sums: str) -> tuple[Array, Array]:
        """([C, M] means, [C] bool): a class that was never predicted has the mean of all images, and False."""
        counts, total = self.parts["counts"], self.parts[sums]
        seen = counts > 0
        means = np.where(seen[:, None], total / np.maximum(counts, 1)[:, None], total.sum(axis=0) / self.n)
        return means, seen


def _added(name: str, mine: Array, theirs: Array) -> Array:
    return mine + theirs if name in SUMS else _smallest(np.concatenate([mine, theirs]))


def _smallest(rows: Array) -> Array:
    """The rows with the smallest keys, ascending."""
    keys = row_keys(torch.from_numpy(rows), SEED).numpy()
    return np.asarray(rows[np.argsort(keys, kind="stable")[:BANK]])
