"""The four slots, perturb -> shape -> head -> score: what fills them, and what each is given to look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from oodshape.core.values import ArrayValue, Value
from oodshape.features.chunks import check_finite
from oodshape.features.kernels import normalise_rows
from oodshape.features.moments import Statistic
from oodshape.methods.training_set import Training
from oodshape.networks.head import Fingerprint, Head

R = TypeVar("R", bound="Recipe")
T = TypeVar("T")


class Recipe(Value, abstract=True):
    """A slot's settings before fitting, or several of them; the properties of a recipe cover those inside it."""

    def inside(self) -> Iterator[Recipe]:
        """The recipes that this one is made of: fields that are recipes, or tuples of them."""
        for value in vars(self).values():
            yield from (item for item in (value if isinstance(value, tuple) else (value,)) if isinstance(item, Recipe))

    @property
    def needs(self) -> frozenset[Statistic]:
        """The statistics in `Moments` that fitting needs in addition to `FeatureStats`."""
        return frozenset[Statistic]().union(*(recipe.needs for recipe in self.inside()))

    @property
    def collects(self) -> frozenset[Statistic]:
        """All parts of `Moments` that fitting may look at, those of candidates to choose from included."""
        return self.needs.union(*(recipe.collects for recipe in self.inside()))

    @property
    def keeps(self) -> float:
        """The share of the training images that it keeps from fitting, to choose by."""
        return max((recipe.keeps for recipe in self.inside()), default=0.0)

    @property
    def for_nonnegative(self) -> bool:
        """Whether it is made for features that are never negative, such as those after a ReLU."""
        return any(recipe.for_nonnegative for recipe in self.inside())

    @property
    def wants_proxy(self) -> bool:
        """Whether it chooses by a proxy of images that no classifier should trust (`proxy_features`)."""
        return any(recipe.wants_proxy for recipe in self.inside())

    @property
    def exportable(self) -> bool:
        """Whether what fitting gives can be traced into a graph (`Detector.wrap`, ONNX)."""
        return all(recipe.exportable for recipe in self.inside())

    def unlabelled(self: R) -> R:
        """The same recipe with classes that the network predicts, whether the images have labels or not."""
        return self


class LearnsNothing:
    """A recipe that is its own fitted value; the first base of its class."""

    def fit(self: T, train: Training) -> T:
        return self


class once(Generic[T]):  # used as a decorator
    """functools.cached_property without its lock, which no tracer can enter (Python 3.11 still has it).

    >>> class Sum:
    ...     @once
    ...     def total(self) -> int:
    ...         print("adding")
    ...         return 1 + 2
    >>> one = Sum()
    >>> one.total + one.total
    adding
    6
    """

    def __init__(self, make: Callable[[Any], T]) -> None:
        self.make = make
        self.name = make.__name__
        self.__doc__ = make.__doc__

    def __get__(self, instance: Any, owner: type) -> T:
        """The value, which the instance keeps in the property's place."""
        value = self.make(instance)
        setattr(instance, self.name, value)
        return value


@dataclass(eq=False)
class Batch:
    """Some rows of features to score; logits and classes are computed on demand."""

    raw: Tensor  # [n, M] as stored
    head: Head
    first: int = 0  # the number of the first row, for messages
    given_logits: Tensor | None = None
    given_classes: Tensor | None = None
    buffer: Tensor | None = None  # [n, M] float32 that may be overwritten
    bank_products: dict[int, Tensor] = field(default_factory=dict)  # [n, B] by the id of a bank [B, M]
    checked: bool = True  # whether NaN and infinite features are still to be refused: a graph cannot look
    dtype: torch.dtype = torch.float32  # what is computed in; float64 goes with a float64 head and `traced` parts

    @once
    def values(self) -> Tensor:
        """[n, M] in `dtype`, not checked."""
        return self.raw.to(self.dtype)

    @once
    def features(self) -> Tensor:
        """[n, M] in `dtype`, finite."""
        if self.checked:
            check_finite(self.raw, self.first)
        return self.values

    @once
    def logits(self) -> Tensor:
        """[n, C]: the logits of the network itself, of finite features."""
        if self.given_logits is not None:
            return self.given_logits
        logits = self.head.logits(self.values)
        # a NaN or infinite feature reaches every logit of its row, even through a weight of 0: one tells of all
        if self.checked and not bool(torch.isfinite(logits[:, 0]).all()):
            check_finite(self.raw, self.first)
        self.checked = False
        return logits

    @once
    def classes(self) -> Tensor:
        """[n]: the class that the network itself predicts."""
        return self.logits.argmax(dim=1) if self.given_classes is None else self.given_classes

    @once
    def directions(self) -> Tensor:
        """[n, M]: features of length 1; zeros stay zeros."""
        return normalise_rows(self.features)


class Shape(Value, abstract=True):
    """A fitted shaping function: features [N, M] -> shaped features [N, M].

    theta(z) = f(z) / z is its reparameterisation; two shapes combine by multiplying their thetas at the raw value.

    >>> from oodshape.methods.shapes.clipping import Clip
    >>> Clip(t=1.0)(torch.tensor([[0.5, 4.0]]))
    tensor([[0.5000, 1.0000]])
    """

    @property
    def pointwise(self) -> bool:
        """Whether it may be asked about single values; not where each feature has limits of its own."""
        return True

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        """Shape features; the input is not changed.

        Args:
            z: [N, M] features.
            out: Tensor to write to, if that saves memory.

        Returns:
            [N, M] shaped features.
        """
        raise NotImplementedError

    def scale(self, z: Tensor, values: Tensor) -> Tensor:
        """Multiply values by theta(z), with theta(0) = 1.

        Args:
            z: [N, M] features.
            values: [N, M] values.

        Returns:
            [N, M] products.
        """
        return torch.where(z == 0, values, self(z) / torch.where(z == 0, 1.0, z) * values)


class Shaper(Recipe, abstract=True):
    """A recipe for a shape.

    >>> from oodshape import Features
    >>> from oodshape.methods.shapes.clipping import ReAct
    >>> train = Features.from_arrays([[1.0, 2.0], [3.0, 5.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> ReAct(q=0.5).fit(Training.of(train))
    Clip(t=2.500244140625)
    """

    def fit(self, train: Training) -> Shape:
        """Fit the shape on a training set.

        Args:
            train: The training set.

        Returns:
            The fitted shape.
        """
        raise NotImplementedError


class Identity(LearnsNothing, Shape, Shaper):
    """Features as they are."""

    def __call__(self, z: Tensor, out: Tensor | None = None) -> Tensor:
        return z


class FittedHead(Value, abstract=True):
    """A fitted head: shaped features -> logits.

    >>> from oodshape.methods.heads import Linear
    >>> isinstance(Linear(), FittedHead)
    True
    """

    def fuses(self, shape: Shape) -> bool:
        """Tell whether shaping and head are one loop over the raw features that allocates nothing.

        Args:
            shape: The fitted shape.

        Returns:
            True if they are.
        """
        return False

    def bind(self, head: Head) -> Head:
        """Return the linear layer that is used instead of the classifier's own.

        Args:
            head: The classifier's head.

        Returns:
            The layer.
        """
        return head

    def logits(self, batch: Batch, shape: Shape, layer: Head) -> Tensor:
        """Compute the logits of shaped features.

        Args:
            batch: The features.
            shape: The fitted shape.
            layer: The layer from `bind`.

        Returns:
            [n, C] logits.
        """
        if isinstance(shape, Identity) and layer is batch.head:
            return batch.logits
        return layer.logits(shape(batch.features, batch.buffer))


class HeadRecipe(Recipe, abstract=True):
    """A recipe for a head.

    >>> from oodshape.methods.heads import Dice
    >>> isinstance(Dice(p=0.7), HeadRecipe)
    True
    """

    def fit(self, train: Training) -> FittedHead:
        """Fit the head on a training set.

        Args:
            train: The training set.

        Returns:
            The fitted head.
        """
        raise NotImplementedError


@dataclass(eq=False)
class Evidence:
    """What a score may use: logits after shape and head, features and classes of the network, each computed on demand.

    >>> from oodshape import Features, Method
    >>> from oodshape.methods.scores.logits import MaxLogit
    >>> head = ([[1.0, 0.0], [0.0, 1.0]], None)
    >>> detector = Method(score=MaxLogit()).fit(Features.from_arrays([[2.0, 0.5]], head))
    >>> detector.score(Features.from_arrays([[4.0, 0.0]], head))
    tensor([4.])

    Attributes:
        batch: The features.
        shape: The fitted shape.
        fitted: The fitted head.
        layer: The fitted head's own linear layer.
    """

    batch: Batch
    shape: Shape
    fitted: FittedHead
    layer: Head  # the fitted head's own linear layer

    @once
    def logits(self) -> Tensor:
        """[n, C] logits of the shaped features."""
        return self.fitted.logits(self.batch, self.shape, self.layer)

    @property
    def features(self) -> Tensor:
        """[n, M]: the features as the network gives them, finite."""
        return self.batch.features

    @property
    def classes(self) -> Tensor:
        """[n]: the class that the network predicts."""
        return self.batch.classes

    @property
    def head(self) -> Head:
        return self.batch.head

    @property
    def directions(self) -> Tensor:
        """[n, M]: features of length 1; zeros stay zeros."""
        return self.batch.directions


class FittedScore(ArrayValue, abstract=True):
    """A fitted score: one number per image, higher = more in-distribution.

    >>> from oodshape.methods.scores.class_means import Pattern
    >>> issubclass(Pattern, FittedScore)
    True
    """

    def of(self, seen: Evidence) -> Tensor:
        """Score images.

        Args:
            seen: Logits, features and classes of the images.

        Returns:
            [N] scores, higher = more in-distribution.
        """
        raise NotImplementedError


class FittedSlots(Value):
    """A recipe, what fitting made of its slots, and the fingerprint of the head that it was fitted for."""

    method: Recipe
    shape: Shape
    head: FittedHead
    scorer: FittedScore
    fingerprint: Fingerprint | str


class ScoreRecipe(Recipe, abstract=True):
    """A recipe for a score.

    >>> from oodshape.methods.scores.class_means import She
    >>> isinstance(She(), ScoreRecipe)
    True
    """

    reads_features = True  # whether it looks at the features themselves: no shape or other head may stand before it

    def fit(self, train: Training) -> FittedScore:
        """Fit the score on a training set.

        Args:
            train: The training set.

        Returns:
            The fitted score.
        """
        raise NotImplementedError


class Score(LearnsNothing, FittedScore, ScoreRecipe, abstract=True):
    """A score of the logits alone that learns nothing.

    >>> from oodshape.methods.scores.logits import MaxLogit
    >>> MaxLogit()(torch.tensor([[1.0, 3.0]]))
    tensor([3.])
    """

    reads_features = False

    def of(self, seen: Evidence) -> Tensor:
        """Score images.

        Args:
            seen: Logits, features and classes of the images.

        Returns:
            [N] scores, higher = more in-distribution.
        """
        return self(seen.logits)

    def __call__(self, logits: Tensor) -> Tensor:
        """Score logits.

        Args:
            logits: [N, C] logits.

        Returns:
            [N] scores, higher = more in-distribution.
        """
        raise NotImplementedError
