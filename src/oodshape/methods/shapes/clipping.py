"""Shaping functions that cut: recipes (`ReAct(q=0.9)`) and what fitting makes of them (`Clip(t=1.22)`)."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from oodshape.core.errors import InputError, check_fraction
from oodshape.core.values import AtLeast, Fraction, Positive
from oodshape.methods.slots import Shape, Shaper
from oodshape.methods.training_set import Training


class Clip(Shape):
    """f(z) = min(z, t).

    >>> Clip(t=1.0)(torch.tensor([[0.5, 2.0]]))
    tensor([[0.5000, 1.0000]])
    """

    t: float

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        return torch.clamp(z, max=self.t, out=out)


class ReAct(Shaper):
    """Clip at the q-quantile of all training features (Sun et al., 2021)."""

    q: Annotated[float, Fraction()] = 0.9

    def fit(self, train: Training) -> Clip:
        return Clip(t=train.stats.quantile(self.q))


class SoftClip(Shape):
    """f(z) = z / sqrt(1 + (z / t)^(2 order)), symmetric around 0.

    >>> SoftClip(t=1.0, order=1)(torch.tensor([[0.0, 1.0, -1.0]]))
    tensor([[ 0.0000,  0.7071, -0.7071]])
    """

    t: Annotated[float, Positive()]
    order: Annotated[int, AtLeast(1)]

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """Features bent towards +-t (towards 0 beyond it, for order > 1)."""
        # |z/t| <= 1e6 keeps the power finite; the limit of f is 0 there for order > 1, +-t for order = 1
        ratio = (z / self.t).clamp(-1e6, 1e6).pow_(2 * self.order)
        return torch.mul(z, ratio.add_(1.0).rsqrt_(), out=out)


class BFAct(Shaper):
    """The Butterworth filter with its limit at the q-quantile of the training features (Kong & Li, 2023)."""

    q: Annotated[float, Fraction()] = 0.95
    order: int = 2

    def __post_init__(self) -> None:
        if not 1 <= self.order <= 6:
            raise InputError(f"order must lie in 1..6, got {self.order}")

    def fit(self, train: Training) -> SoftClip:
        t = train.stats.quantile(self.q)
        if t <= 0:
            raise InputError(f"BFAct needs a positive limit, the {self.q:g}-quantile of the features is {t:g}; raise q")
        return SoftClip(t=t, order=self.order)


class Band(Shape):
    """f(z) = 0 below low, z between, high from high on.

    >>> Band(low=0.5, high=1.0)(torch.tensor([[0.4, 0.5, 0.7, 3.0]]))
    tensor([[0.0000, 0.5000, 0.7000, 1.0000]])
    """

    low: float
    high: float

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        low = torch.tensor(self.low, dtype=z.dtype, device=z.device)
        return torch.mul(z >= low, z.clamp(max=self.high), out=out)


class VraP(Shaper):
    """The band between two quantiles of the training features, or two absolute limits (Xu et al., 2023)."""

    for_nonnegative = True  # it takes small values for unimportant ones

    low: float = 0.6
    high: float = 0.95
    absolute: bool = False

    def __post_init__(self) -> None:
        if not self.absolute:
            check_fraction("low", self.low)
            check_fraction("high", self.high)
        if not self.low < self.high:
            raise InputError(f"low must be less than high, got {self.low:g} and {self.high:g}")

    def fit(self, train: Training) -> Band:
        if self.absolute:
            return Band(low=self.low, high=self.high)
        return Band(low=train.stats.quantile(self.low), high=train.stats.quantile(self.high))


class ProductShape(Shape):
    """f(z) = f_1(z) theta_2(z) theta_3(z) ...: every theta at the raw value."""

    shapes: tuple[Shape, ...]

    @property
    def pointwise(self) -> bool:
        return all(shape.pointwise for shape in self.shapes)

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        shaped = self.shapes[0](z, out)
        for shape in self.shapes[1:]:
            shaped = shape.scale(z, shaped)
        return shaped


class Product(Shaper):
    """Several shapers, each fitted on the raw features, their thetas multiplied.

    >>> Product((ReAct(q=0.9), ReAct(q=0.8)))
    Product(shapers=(ReAct(q=0.9), ReAct(q=0.8)))
    """

    shapers: tuple[Shaper, ...]

    def __post_init__(self) -> None:
        if not self.shapers:
            raise InputError("a Product needs at least one shaper")

    def fit(self, train: Training) -> ProductShape:
        return ProductShape(shapes=tuple(shaper.fit(train) for shaper in self.shapers))
