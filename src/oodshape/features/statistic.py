"""RunningSums: the sums that become `Moments`, filled chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import StrEnum
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import unknown
from oodshape.features.kernels import TINY
from oodshape.features.sum_kernels import Scatter, add_by_class, add_sorted, add_squares, row_lengths
from oodshape.networks.head import Head, drop_classes


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


Array = NDArray[Any]
TEMPERATURES = tuple(2 ** (step / 2) for step in range(-6, 7))  # at which a label's surprise is summed
SCATTERS = {"scatter": False, "unit_scatter": True}  # name -> whether of rows of length 1


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

    def energy(self) -> float:
        """The summed log of the summed exponentials, read off the largest logit and its probability."""
        logs = self.logits.amax(dim=1) - self.probabilities.amax(dim=1).log()
        return float(logs.double().sum())


def _add_counts(rows: FeatureRows, total: Array) -> None:
    total += np.bincount(rows.classes.numpy(), minlength=len(total))


def _add_energy(rows: FeatureRows, total: Array) -> None:
    total += rows.energy()


def _count_labels(rows: FeatureRows, which: Tensor, total: Array) -> None:
    total += np.bincount(rows.labels[which].numpy(), minlength=len(total))


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
    Statistic.COUNTS: _add_counts,
    Statistic.CLASS_SUMS: lambda rows, total: add_by_class(rows.z, rows.classes, total),
    Statistic.UNIT_CLASS_SUMS: lambda rows, total: add_by_class(rows.z, rows.classes, total, rows.inverse_lengths),
    Statistic.SOFTMAX_SUMS: lambda rows, total: add_by_class(rows.probabilities, rows.classes, total),
    Statistic.SQUARES: lambda rows, total: add_squares(rows.z, total),
    Statistic.PROFILE: lambda rows, total: add_sorted(rows.z, total),
    Statistic.ENERGY: _add_energy,
    Statistic.LABEL_COUNTS: lambda rows, total: _count_labels(rows, rows.labelled, total),
    Statistic.LABEL_SUMS: lambda rows, total: _add_by_label(rows, rows.labelled, total),
    Statistic.UNIT_LABEL_SUMS: lambda rows, total: _add_by_label(rows, rows.labelled, total, rows.inverse_lengths),
    Statistic.RIGHT_COUNTS: lambda rows, total: _count_labels(rows, rows.right, total),
    Statistic.RIGHT_SUMS: lambda rows, total: _add_by_label(rows, rows.right, total),
    Statistic.LABEL_SURPRISE: _add_surprise,
}
BY_LABEL = frozenset(part for part in Statistic if part.startswith(("label", "unit_label", "right")))


LOGIT_SUMS = frozenset([Statistic.COUNTS, Statistic.SOFTMAX_SUMS, Statistic.ENERGY])  # look at no features


class RunningStatistics:
    """Collects the named statistics over all added rows."""

    def __init__(self, names: frozenset[str], head: Head, *, exact: bool = False, labelled: bool = True) -> None:
        """Zeros; `labelled` says whether any of the rows may have a label. `exact`: all in float64."""
        self.head, self.exact = head, exact
        self.remaining: RemainingClasses | None = None
        axis_sizes = {"C": head.classes, "M": head.width, "T": len(TEMPERATURES), "1": 1}
        sizes = {name: tuple(axis_sizes[axis] for axis in Statistic(name).axes) for name in sorted(names & SUMS.keys())}
        missing = frozenset() if labelled else BY_LABEL
        # what stays zero takes no memory
        self.never = {name: np.broadcast_to(0.0, size) for name, size in sizes.items() if name in missing}
        self.totals = {name: np.zeros(size) for name, size in sizes.items() if name not in missing}
        self.scatters = {
            name: Scatter(head.width, directions=SCATTERS[name], double=exact)
            for name in sorted(names & SCATTERS.keys())
        }

    def add(self, z: Tensor, classes: Tensor, logits: Tensor | None = None, labels: Tensor | None = None) -> None:
        """Add rows [n, M] float32 of the predicted classes [n]; logits [n, C] and labels [n], where they are known."""
        rows = FeatureRows(z, classes, self.head, logits, labels, exact=self.exact)
        for name, total in self.totals.items():
            SUMS[name](rows, total)
        if self.remaining is not None:
            self.remaining.add(rows)
        for scatter in self.scatters.values():
            scatter.add(z)

    def parts(self) -> dict[str, Array]:
        """The sums by name; next to a scatter those of the features that it is of."""
        parts = {**self.never, **self.totals}
        for name, scatter in self.scatters.items():
            parts[name], parts[f"{name}_sums"] = scatter.result()
        return parts


class RemainingClasses:
    """Rows whose class is not left out, behind the head without the others: its logits need no product of their own."""

    def __init__(self, names: frozenset[str], head: Head, left_out: NDArray[np.bool_]) -> None:
        self.stays, self.head = torch.from_numpy(~left_out), drop_classes(head, left_out)
        self.sums = RunningStatistics(names & LOGIT_SUMS, self.head, labelled=False)
        self.predictions = torch.zeros(0, dtype=torch.int64)

    def add(self, rows: FeatureRows) -> None:
        """Add those of the rows that stay."""
        logits = rows.logits[self.stays[rows.classes]][:, self.stays]
        classes = logits.argmax(dim=1)
        self.sums.add(logits, classes, logits)
        self.predictions = torch.cat([self.predictions, classes])
