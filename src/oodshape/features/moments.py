"""Moments: further sums over the training features by name, each collected only when a method asks for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from copy import copy
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError, unknown
from oodshape.core.values import AtLeast, check_fields, check_sizes, freeze_array
from oodshape.features.chunks import Chunked, RowSubset, as_tensor, check_finite
from oodshape.features.kernels import TINY, normalise_rows
from oodshape.features.sum_kernels import (
    Scatter,
    add_by_class,
    add_columns,
    add_sorted,
    add_squares,
    merge_scatters,
    row_lengths,
)
from oodshape.images import identity
from oodshape.networks.head import Fingerprint, Head

Array = NDArray[Any]
BANK = 5000  # images that a bank keeps at most
ROUNDING = 0.01  # of the largest value: how far apart two readings of one image may be; two images are further
TEMPERATURES = tuple(2 ** (step / 2) for step in range(-6, 7))  # at which a label's surprise is summed
SCATTERS = {"scatter": False, "unit_scatter": True}  # name -> whether of rows of length 1


class Statistic(StrEnum):
    """A sum over the training features, or a sample of them; classes are those that the network predicts.

    The parts of labels are zeros where the images have none. A part is the string of its name, so that files, and sets
    of plain names, mean the same. Its `axes` are letters: C classes, M features, B images, T temperatures, 1.

    >>> Statistic.COUNTS == "counts", Statistic("class_sums"), Statistic.CLASS_SUMS.axes
    (True, <Statistic.CLASS_SUMS: 'class_sums'>, 'CM')
    """

    axes: str

    def __new__(cls, name: str, axes: str = "") -> Statistic:
        part = str.__new__(cls, name)
        part._value_, part.axes = name, axes
        return part

    COUNTS = "counts", "C"  # images of each class
    CLASS_SUMS = "class_sums", "CM"  # features of each class
    UNIT_CLASS_SUMS = "unit_class_sums", "CM"  # features of length 1 of each class
    SOFTMAX_SUMS = "softmax_sums", "CC"  # probabilities of each class
    SQUARES = "squares", "M"  # squared features
    SCATTER = "scatter", "MM"  # products of features around their mean
    UNIT_SCATTER = "unit_scatter", "MM"  # products of features of length 1 around their mean
    PROFILE = "profile", "M"  # sorted rows
    ENERGY = "energy", "1"
    BANK = "bank", "BM"  # at most 5,000 images
    LABEL_COUNTS = "label_counts", "C"  # images of each label
    LABEL_SUMS = "label_sums", "CM"  # features of each label
    UNIT_LABEL_SUMS = "unit_label_sums", "CM"  # features of length 1 of each label
    RIGHT_COUNTS = "right_counts", "C"  # images that are predicted as their label
    RIGHT_SUMS = "right_sums", "CM"  # features of these images
    LABEL_SURPRISE = "label_surprise", "T"  # mean logit at each temperature less the label's (`TEMPERATURES`)


def as_statistics(names: Iterable[str]) -> frozenset[Statistic]:
    """Convert names to statistics; an unknown name raises an error that lists the known ones.

    >>> as_statistics(["counts"])
    frozenset({<Statistic.COUNTS: 'counts'>})
    """
    asked = frozenset(names)
    if asked - frozenset(Statistic):
        raise unknown("statistic", min(asked - frozenset(Statistic)), Statistic)
    return frozenset(map(Statistic, asked))


class FeatureRows:
    """Some rows of features, with what the head says about them: computed once, and only when asked for."""

    def __init__(
        self,
        z: Tensor,
        classes: Tensor,
        head: Head,
        logits: Tensor | None = None,
        labels: Tensor | None = None,
        *,
        exact: bool = False,
    ) -> None:
        """The rows [n, M] float32, their predicted classes [n], and where they are known logits [n, C] and labels."""
        self.z, self.classes, self.head, self.given_logits, self.exact = z, classes, head, logits, exact
        self.labels = torch.full_like(classes, -1) if labels is None else labels

    @cached_property
    def logits(self) -> Tensor:
        """[n, C]; in float32 their last bits hang on how many rows are multiplied at once, so `exact` ones are not."""
        if self.exact:
            return torch.addmm(self.head.bias.double(), self.z.double(), self.head.weight.double().T)
        return self.head.logits(self.z) if self.given_logits is None else self.given_logits

    @cached_property
    def probabilities(self) -> Tensor:
        """[n, C]."""
        return self.logits.softmax(dim=1)

    @cached_property
    def inverse_lengths(self) -> Tensor:
        """[n] float64: what makes each row one of length 1."""
        return row_lengths(self.z).clamp_min(TINY).reciprocal()

    @cached_property
    def labelled(self) -> Tensor:
        """The numbers of the rows whose label is a class of the network."""
        return torch.nonzero((self.labels >= 0) & (self.labels < self.head.classes)).flatten()

    @cached_property
    def right(self) -> Tensor:
        """The numbers of the rows that are predicted as their label."""
        return self.labelled[(self.classes == self.labels)[self.labelled]]


def _count(classes: Tensor, total: Array) -> None:
    total += np.bincount(classes.numpy(), minlength=len(total))


def _add_energy(rows: FeatureRows, total: Array) -> None:
    """Add the log of the summed exponentials, read off the largest logit and its probability."""
    logs = rows.logits.amax(dim=1) - rows.probabilities.amax(dim=1).log()
    total += float(logs.double().sum())


def _add_by_label(rows: FeatureRows, which: Tensor, total: Array, factors: Tensor | None = None) -> None:
    """Add some of the rows to the rows of their labels; no copy is made where all of them are."""
    if len(which) == len(rows.z):
        add_by_class(rows.z, rows.labels, total, factors)
    elif len(which):
        add_by_class(rows.z[which], rows.labels[which], total, None if factors is None else factors[which])


def _add_surprise(rows: FeatureRows, total: Array) -> None:
    """Add, at each temperature, the mean logit under the probabilities less the logit of the label."""
    if not len(rows.labelled):
        return
    logits = rows.logits[rows.labelled]
    own = float(logits.gather(1, rows.labels[rows.labelled][:, None]).double().sum())
    for place, temperature in enumerate(TEMPERATURES):
        mean = ((logits / temperature).softmax(dim=1) * logits).sum(dim=1)
        total[place] += float(mean.double().sum()) - own


# how rows are added in place; classes are the predicted ones
SUMS: dict[str, Callable[[FeatureRows, Array], None]] = {
    Statistic.COUNTS: lambda rows, total: _count(rows.classes, total),
    Statistic.CLASS_SUMS: lambda rows, total: add_by_class(rows.z, rows.classes, total),
    Statistic.UNIT_CLASS_SUMS: lambda rows, total: add_by_class(rows.z, rows.classes, total, rows.inverse_lengths),
    Statistic.SOFTMAX_SUMS: lambda rows, total: add_by_class(rows.probabilities, rows.classes, total),
    Statistic.SQUARES: lambda rows, total: add_squares(rows.z, total),
    Statistic.PROFILE: lambda rows, total: add_sorted(rows.z, total),
    Statistic.ENERGY: _add_energy,
    Statistic.LABEL_COUNTS: lambda rows, total: _count(rows.labels[rows.labelled], total),
    Statistic.LABEL_SUMS: lambda rows, total: _add_by_label(rows, rows.labelled, total),
    Statistic.UNIT_LABEL_SUMS: lambda rows, total: _add_by_label(rows, rows.labelled, total, rows.inverse_lengths),
    Statistic.RIGHT_COUNTS: lambda rows, total: _count(rows.labels[rows.right], total),
    Statistic.RIGHT_SUMS: lambda rows, total: _add_by_label(rows, rows.right, total),
    Statistic.LABEL_SURPRISE: _add_surprise,
}
BY_LABEL = frozenset(part for part in Statistic if part.startswith(("label", "unit_label", "right")))


class Bank:
    """The rows with the smallest keys so far. Banks of parts give that of the whole, in whatever order.

    Rows of equal key that hold the same values are one image and kept once. Where they differ they are two images
    that share a number (parts whose rows were numbered alike): both count.
    """

    def __init__(self, width: int, *, half: bool = False) -> None:
        """An empty bank for rows of the given width, in float16 where they come so."""
        self._keys = np.zeros(0, np.uint64)
        self._kept = np.empty((0, width), np.float16 if half else np.float32)

    def add(self, keys: identity.Keys, rows: Array) -> None:
        """Add rows; if the bank is full, the rows with the largest keys are dropped."""
        if len(self._keys) == BANK:  # spares the sorting of all the others
            below = keys <= self._keys[-1]
            keys, rows = keys[below], rows[below]
        both, values = np.concatenate([self._keys, keys]), np.concatenate([self._kept, rows])
        order = _distinct(both, values)[:BANK]
        self._keys, self._kept = both[order], values[order]

    def result(self) -> tuple[identity.Keys, Array]:
        """([B] keys, ascending, and [B, M] their rows)."""
        return self._keys, self._kept


def pick_bank(values: Any, identities: identity.Keys) -> dict[str, Any]:
    """The parts of the bank of an array's rows, which are read when they are used; none if two are of one image."""
    keys = identity.draw_keys(identities, SEED, "bank")
    order = np.argsort(keys, kind="stable")
    if not np.diff(keys[order]).all():
        return {}
    return {"bank_keys": keys[order[:BANK]], "bank": RowSubset(values, torch.from_numpy(order[:BANK]))}


def _distinct(keys: identity.Keys, rows: Array) -> NDArray[np.int64]:
    """The places of the rows by ascending key; each image once."""
    order = np.argsort(keys, kind="stable")
    starts = np.concatenate([[0], np.flatnonzero(np.diff(keys[order])) + 1, [len(order)]])
    if len(starts) > len(order):
        return order
    same = (order[first:last] for first, last in pairwise(starts))
    return np.concatenate([places if len(places) == 1 else _images(places, rows) for places in same])


def _images(places: NDArray[np.int64], rows: Array) -> NDArray[np.int64]:
    """The places of the different images among rows of one key, in an order of their own."""
    values = rows[places].astype(np.float32)
    chosen: list[int] = []
    for i in sorted(range(len(places)), key=lambda i: values[i].tolist()):
        if all(np.abs(values[i] - values[j]).max() > ROUNDING * np.abs(values[j]).max() for j in chosen):
            chosen.append(i)
    return places[chosen]


SEED = 0
OWNERS = {"bank_keys": "bank", **{f"{name}_sums": name for name in SCATTERS}}  # what comes with another part
AT_ONCE = 256  # rows of a bank that are looked at: a copy of all would be large, products of fewer slow


@dataclass(frozen=True, eq=False)
class Moments:
    """Sums over features by name, and a bank of at most 5,000 images; two of them can be added.

    Sums are float64. Logits, and products of many features where that is enough (`sum_kernels.Scatter`), are float32
    unless `exact` is set: then parts add up to the whole within 1e-12 of the largest sum. A scatter comes with the sums
    of its features, because scatters of parts are moved to the common mean. The bank holds the images with the smallest
    keys; a key is a seeded hash of the image's identity (`Features.identities`). It is a random sample without
    replacement, the same for every order in which parts are added.

    >>> from oodshape.features.features import Features
    >>> features = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> Moments.of(features, frozenset(["counts", "profile"])).parts["profile"].tolist()
    [1.0, 4.0]

    Attributes:
        head: Fingerprint of the head that predicted the classes.
        n: Number of images.
        parts: Arrays by the name of the statistic.
    """

    head: Fingerprint | str  # the fingerprint of the head that predicted
    n: Annotated[int, AtLeast(1)]
    parts: dict[str, Array]

    def __post_init__(self) -> None:
        """Refuse parts that no features give: unknown ones, or such that differ in classes or features."""
        check_fields(self)
        sizes: dict[str, int] = {}
        for name, part in self.parts.items():
            letters, types = _form(name)
            if str(part.dtype) not in types.split():
                raise InputError(f"{name} must be {types.replace(' ', ' or ')}, got {part.dtype}")
            check_sizes(part, letters, name, sizes)
            if part.dtype.kind == "f" and not np.isfinite([part.min(), part.max()]).all():  # without a copy
                raise InputError(f"{name} holds a NaN or infinite value")
        for extra, of in OWNERS.items():
            if (extra in self.parts) != (of in self.parts):
                raise InputError(f"{of} and {extra} come together, got one of them")
        counts = self.parts.get("counts")
        if counts is not None and (counts.min() < 0 or counts.sum() != self.n):
            raise InputError(f"the counts of classes add up to {counts.sum():g}, there are {self.n} images")

    @classmethod
    def of(cls, features: Chunked, needs: frozenset[str], *, exact: bool = False) -> Moments:
        """Collect statistics in one pass.

        Args:
            features: The features.
            needs: Names of the statistics.
            exact: Use float64 throughout.

        Returns:
            The sums.
        """
        running = RunningMoments(features, needs, exact=exact)
        for first, raw, predicted in features.classified_chunks() if needs else ():
            running.add(first, raw, predicted)
        return running.result()

    def __add__(self, other: Moments) -> Moments:
        """The moments of both data sets together; only parts that both hold, refused across heads."""
        if self.head != other.head:
            raise InputError(f"moments of different heads do not add up: {self.head} and {other.head}")
        parts = {
            name: self.parts[name] + other.parts[name]
            for name in sorted((self.parts.keys() & other.parts.keys()) - {"bank", "bank_keys", *SCATTERS})
        }
        for name in sorted(SCATTERS.keys() & self.parts.keys() & other.parts.keys()):
            both = ((each.parts[name], each.parts[f"{name}_sums"], each.n) for each in (self, other))
            parts[name] = merge_scatters(*both)
        if "bank" in self.parts.keys() & other.parts:
            half = all(moments.parts["bank"].dtype == np.float16 for moments in (self, other))
            bank = Bank(self.parts["bank"].shape[1], half=half)
            for moments in (self, other):
                bank.add(moments.parts["bank_keys"], moments.parts["bank"])
            parts["bank_keys"], parts["bank"] = bank.result()
        return Moments(self.head, self.n + other.n, parts)

    def combine(self, other: Moments) -> Moments:
        """Join the statistics of both, which are of the same features.

        Args:
            other: Other statistics of the same features.

        Returns:
            All statistics.
        """
        return self.holding({**self.parts, **other.parts})

    def without(self, names: frozenset[str]) -> Moments:
        """Leave out some statistics.

        Args:
            names: Names of the statistics.

        Returns:
            The other statistics.
        """
        return self.holding({name: part for name, part in self.parts.items() if OWNERS.get(name, name) not in names})

    def holding(self, parts: dict[str, Array]) -> Moments:
        """Replace the parts, of features that were checked: to read them again takes time.

        Args:
            parts: Parts by name.

        Returns:
            Moments of the same features with these parts.
        """
        made = copy(self)
        object.__setattr__(made, "parts", parts)
        for name in () if "bank" in parts else ("directions", "outputs"):
            vars(made).pop(name, None)
        return made

    def only(self, names: frozenset[str], head: Head) -> Moments:
        """Select statistics that do not depend on the head, as moments of another head.

        Args:
            names: Names of the statistics.
            head: The other head.

        Returns:
            The selected statistics.
        """
        kept = {name: part for name, part in self.parts.items() if OWNERS.get(name, name) in names}
        return Moments(head.fingerprint, self.n, kept)

    def bank(self) -> Iterator[Tensor]:
        """Iterate over the images of the bank, a few at a time.

        Returns:
            An iterator over [n, M] float32 features.
        """
        rows = self.parts["bank"]
        for first in range(0, rows.shape[0], AT_ONCE):
            yield as_tensor(rows[first : first + AT_ONCE]).float().cpu()

    def bank_outputs(self, head: Head) -> tuple[Tensor, Tensor]:
        """Return the energies and the largest logits of the bank, computed once for all methods.

        Args:
            head: The head that predicted the classes, on the CPU.

        Returns:
            [B] energies and [B] largest logits.
        """
        if "outputs" not in vars(self):
            found = [(torch.logsumexp(logits, dim=1), logits.amax(dim=1)) for logits in map(head.logits, self.bank())]
            vars(self)["outputs"] = tuple(torch.cat(each) for each in zip(*found, strict=True))
        outputs: tuple[Tensor, Tensor] = vars(self)["outputs"]
        return outputs

    @cached_property
    def directions(self) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
        """([M], [B, M]) frozen: the images of the bank at length 1, their mean and the rest.

        One array for all methods that look at it.
        """
        rows = np.empty(self.parts["bank"].shape, np.float32)
        for part, out in zip(self.bank(), torch.split(torch.from_numpy(rows), AT_ONCE), strict=True):
            normalise_rows(part, out)
        return around_mean(rows)

    def means(self, sums: str, counts: str = "counts") -> tuple[Array, Array]:
        """Compute class means.

        Args:
            sums: Name of the sums by class.
            counts: Name of the counts by class.

        Returns:
            [C, M] means and [C] bool; a class without images has the mean of all images, and False.
        """
        number, total = self.parts[counts], self.parts[sums]
        seen = number > 0
        every = total.sum(axis=0) / number.sum()
        return np.where(seen[:, None], total / np.maximum(number, 1)[:, None], every), seen


def around_mean(rows: NDArray[np.float32]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """([M] mean, [B, M] rows less the mean), frozen; the rows are changed in place."""
    sums = np.zeros(rows.shape[1])
    add_columns(torch.from_numpy(rows), sums)
    center = (sums / len(rows)).astype(np.float32)
    rows -= center
    return freeze_array(center), freeze_array(rows)


def _form(name: str) -> tuple[str, str]:
    """(The letters of the axes of a part, its types); the keys of a bank say which images its rows are of."""
    if name in OWNERS:
        return ("B", "uint64") if name == "bank_keys" else ("M", "float64")
    (part,) = as_statistics([name])
    return part.axes, "float32 float16" if part is Statistic.BANK else "float64"  # a bank is as the features are


class RunningMoments:
    """`Moments` while they are collected."""

    def __init__(self, features: Chunked, needs: frozenset[str], *, exact: bool = False) -> None:
        """Zeros; `exact`: all in float64."""
        as_statistics(needs)
        head = self.head = features.head.to("cpu")
        self.n, self.labels, self.exact = len(features), features.labels, exact
        axis_sizes = {"C": head.classes, "M": head.width, "T": len(TEMPERATURES), "1": 1}
        sizes = {name: tuple(axis_sizes[axis] for axis in Statistic(name).axes) for name in sorted(needs & SUMS.keys())}
        missing = BY_LABEL if self.labels is None else frozenset()
        # what stays zero takes no memory
        self.never = {name: np.broadcast_to(0.0, size) for name, size in sizes.items() if name in missing}
        self.totals = {name: np.zeros(size) for name, size in sizes.items() if name not in missing}
        self.scatters = {
            name: Scatter(head.width, directions=SCATTERS[name], double=exact)
            for name in sorted(needs & SCATTERS.keys())
        }
        self.keys = identity.draw_keys(features.identities, SEED, "bank") if "bank" in needs else None
        self.bank = None if self.keys is None else Bank(head.width, half=features.half)

    def add(self, first: int, raw: Tensor, classes: Tensor, logits: Tensor | None = None) -> None:
        """Add the rows from number `first` on, as stored, and where they are known their logits."""
        check_finite(raw, first)
        z = raw.float().cpu()
        if self.bank is not None and self.keys is not None:
            self.bank.add(self.keys[first : first + len(raw)], raw.cpu().numpy())
        labels = None if self.labels is None else self.labels[first : first + len(z)]
        known = None if logits is None else logits.cpu()
        rows = FeatureRows(z, classes.cpu(), self.head, known, labels, exact=self.exact)
        for name, total in self.totals.items():
            SUMS[name](rows, total)
        for scatter in self.scatters.values():
            scatter.add(z)

    def result(self) -> Moments:
        """The sums by name; next to a scatter those of the features that it is of."""
        parts = {**self.never, **self.totals}
        for name, scatter in self.scatters.items():
            parts[name], parts[f"{name}_sums"] = scatter.result()
        if self.bank is not None:
            parts["bank_keys"], parts["bank"] = self.bank.result()
        return Moments(self.head.fingerprint, self.n, parts)
