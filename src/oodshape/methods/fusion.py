"""Fusion: several fitted component detectors as one score, each through its p-values among ID images."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import Ascending, AtLeast, Fraction, Sizes
from oodshape.features.kernels import look_up, search_sorted
from oodshape.methods.detector import Detector
from oodshape.methods.slots import Evidence, FittedHead, FittedScore, Shape

TAIL = 0.1  # the lowest fraction of ID values, below which p-values fall exponentially
VETO = math.log(5)  # a component that is five times as certain as the sum decides alone
STEEP = 3  # the power with which a filter's p-value falls below its limit
MOST_COMPONENTS = 64  # each costs time for every image
SCRAMBLED = "scrambled ID images"
ROUNDING = 1e-4  # relative: a bound on what float32 makes of one image in batches of other sizes
SMALL = 0.01  # values below it count as this large for rounding, because they are differences of larger ones
Reference = Annotated[NDArray[np.float32], Sizes("N"), Ascending()]
C = TypeVar("C", bound="Component")


def log_p(values: Tensor, reference: Tensor) -> Tensor:
    """[..., n]: log of the smoothed fraction of the ID values `reference` [..., N], ascending, that are as low.

    The fraction is (1 + #{< value}) / (N + 1), linear between neighbours. Below the lowest tenth it falls exponentially
    with the mean distance there, so that values below every ID value keep their order. It is the mean of the fractions
    just below and just above the value: equal ID values, which differ in their last bits from batch to batch, get one
    p-value.
    """
    k = int(TAIL * reference.shape[-1])
    start = reference[..., k : k + 1]
    near = _rounding(start)
    limit, reach = start - near, (start - reference[..., :k]).mean(-1, keepdim=True).clamp_min(1e-12).maximum(near)
    body = _body(torch.cat([limit, values], dim=-1), reference)  # one search, because a graph has many nodes for each
    tail = body[..., :1] - (limit - values) / reach
    return torch.where(values < limit, tail, body[..., 1:])


def _body(values: Tensor, reference: Tensor) -> Tensor:
    """[..., n]: the log of the fraction, without the tail."""
    around = _rounding(values)
    both = torch.stack([values - around, values + around], dim=-2)
    places = _place(both.flatten(-2), reference).reshape(both.shape).mean(dim=-2)
    return (places / (reference.shape[-1] + 1)).log()


def _rounding(values: Tensor) -> Tensor:
    """[..., n]: how much rounding may have changed them."""
    return ROUNDING * values.abs().clamp_min(SMALL)


def _place(values: Tensor, reference: Tensor) -> Tensor:
    """[..., n]: 1 + the number of ID values below, linear between neighbours; N above the highest."""
    n = reference.shape[-1]
    place = search_sorted(values.contiguous(), reference, right=False)
    low, high = look_up(reference, (place - 1).clamp_min(0)), look_up(reference, place.clamp_max(n - 1))
    between = torch.where(high > low, (values - low) / (high - low).clamp_min(1e-30), 0.0).clamp(0, 1)
    return (place + between).clamp(1, n)


class Component(FittedScore):
    """A fitted method inside a fusion, with the ID scores that turn its own into p-values."""

    name: str
    shape: Shape
    head: FittedHead
    scorer: FittedScore
    reference: Reference  # scores of the selection images

    @classmethod
    def of_detector(cls: type[C], name: str, detector: Detector, id_scores: Tensor, **more: float) -> C:
        reference = np.sort(id_scores.cpu().numpy())
        return cls(name, detector.shape, detector.head, detector.scorer, reference, **more)

    def of(self, seen: Evidence) -> Tensor:
        """[n]: the method's own scores."""
        return self.scorer.of(Evidence(seen.batch, self.shape, self.head, self.head.bind(seen.head)))

    def log_p(self, scores: Tensor) -> Tensor:
        """[n]: log p-values of the method's own scores among the selection images."""
        return log_p(scores, self.tensor("reference", scores))


def _each_log_p(parts: Sequence[Component], scores: Sequence[Tensor]) -> Tensor:
    """[K, n]: log p-values of the scores of each part, all by one search."""
    return log_p(torch.stack(list(scores)), torch.stack([part.tensor("reference", scores[0]) for part in parts]))


class Filter(Component):
    """A component against noise or constant images: it decides alone, but only below a limit.

    Images that it finds as likely as most ID images keep the order that the other components give them.
    """

    weight: float  # of its log p-value in the sum
    limit: Annotated[float, Fraction()]  # the p-value below which it decides

    def bound(self, logs: Tensor) -> Tensor:
        """[n]: log of limit * (p / limit) ** STEEP, which the fused p-value is at most."""
        return STEEP * logs - (STEEP - 1) * math.log(self.limit)


def _combined(each: Tensor, filters: Sequence[Filter]) -> tuple[Tensor, Tensor]:
    """[K, n] log p-values of the components, then of the filters -> [n] weighted sums, [n] minima.

    The minima are those of the components alone: filters have bounds of their own.
    """
    count = len(each) - len(filters)
    weighted = (one.weight * logs for one, logs in zip(filters, each[count:], strict=True))
    return sum(weighted, each[:count].sum(dim=0)), each[:count].amin(dim=0)


class Fusion(FittedScore):
    """The p-value of the components together, as a log; the plain score where there is only one component.

    With L the log p-values of the components, the score is min(q_F(sum L), q_min(min L) + log 5), where q_F and q_min
    are log p-values of the sum (Fisher) and of the minimum among the selection images. The second term is a veto: one
    component that is certain decides, although the sum dilutes it. The log p-values of the `filters` are in the sum
    with their weights, and the score is at most the bound of each.
    """

    components: tuple[Component, ...]
    ranking: tuple[tuple[str, float], ...] = ()  # every candidate with its mean proxy AUROC, best first
    proxies: tuple[str, ...] = ()  # descriptions of the proxy sets
    values: tuple[tuple[float, ...], ...] = ()  # for every candidate of the ranking, its AUROC on each proxy set
    best: Annotated[int, AtLeast(0)] = 0  # how many components are the best of the ranking; the others are always added
    notes: tuple[str, ...] = ()  # what could not be done, and why
    sums: Reference | None = None  # sum L and ...
    minima: Reference | None = None  # ... min L of the selection images; None where there is only one component
    filters: tuple[Filter, ...] = ()  # against noise or constant images, where the components accept them

    def __post_init__(self) -> None:
        super().__post_init__()
        if [len(row) for row in self.values] != [len(self.proxies)] * len(self.ranking):
            raise InputError(
                f"{len(self.values)} rows of values for {len(self.ranking)} candidates and {len(self.proxies)} proxies"
            )
        if len(self.components + self.filters) > MOST_COMPONENTS:
            raise InputError(f"a fusion has at most {MOST_COMPONENTS} components, got {len(self.components):,}")
        if len(self.components) > 1 and (self.sums is None or self.minima is None):
            raise InputError(f"a fusion of {len(self.components)} components needs the sums and minima of ID images")
        references = [part.reference for part in (*self.components, *self.filters)]
        if len({len(each) for each in (*references, self.sums, self.minima) if each is not None}) > 1:
            raise InputError("the components of a fusion must have the scores of the same ID images")

    @classmethod
    def of_components(
        cls, components: tuple[Component, ...], id_scores: Sequence[Tensor], filters: tuple[Filter, ...] = ()
    ) -> Fusion:
        """Fuse components and filters, given the scores [N] of each on the selection images."""
        if len(components) == 1:
            return cls(components)
        each = _each_log_p((*components, *filters), id_scores)
        sums, minima = (np.sort(found.cpu().numpy()) for found in _combined(each, filters))
        return cls(components, sums=sums, minima=minima, filters=filters)

    def of(self, seen: Evidence) -> Tensor:
        """[n] fused scores."""
        if len(self.components) == 1:
            return self.components[0].of(seen)
        return self.fuse(self.each_log_p([part.of(seen) for part in (*self.components, *self.filters)]))

    def each_log_p(self, scores: Sequence[Tensor]) -> Tensor:
        """[K, n]: log p-values of the scores of the components, then of the filters."""
        return _each_log_p((*self.components, *self.filters), scores)

    def fuse(self, each: Tensor) -> Tensor:
        """[K, n] log p-values of the components, then of the filters -> [n] fused log p-values."""
        reference = torch.stack([self.tensor(name, each) for name in ("sums", "minima")])
        fisher, lowest = log_p(torch.stack(_combined(each, self.filters)), reference)
        fused = torch.minimum(fisher, lowest + VETO)
        for place, one in enumerate(self.filters, len(self.components)):
            fused = torch.minimum(fused, one.bound(each[place]))
        return fused

    @property
    def against_scrambled(self) -> float | None:
        """The best AUROC of a candidate on scrambled images, or None without scrambled images."""
        if SCRAMBLED not in self.proxies:
            return None
        return max(row[self.proxies.index(SCRAMBLED)] for row in self.values)

    def __str__(self) -> str:
        """The components, the AUROC of every candidate on the proxy sets, and notes."""
        lines = [f"components: {', '.join(part.name for part in self.components)}"]
        if self.filters:
            lines.append(f"filters against: {', '.join(dict.fromkeys(one.name for one in self.filters))}")
        if self.ranking:
            lines.append("AUROC (%) of ID images against:")
            lines += [f"  {place + 1}: {proxy}" for place, proxy in enumerate(self.proxies)]
            columns = range(1, len(self.proxies) + 1)
            lines.append(" " * 16 + "".join(f"{column:>7}" for column in columns) + "    mean")
            for (name, mean), row in zip(self.ranking, self.values, strict=True):
                lines.append(f"{name:<16}" + "".join(f" {100 * value:6.2f}" for value in row) + f"  {100 * mean:6.2f}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])
