"""Method, the recipe, and Detector, what fitting makes of it: scores, decisions, one file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oodshape import files
from oodshape.errors import InputError, check_fraction
from oodshape.evidence import Evidence
from oodshape.features import Features
from oodshape.heads import Batch, FittedHead, HeadRecipe, Linear
from oodshape.metrics import as_scores
from oodshape.model import Classifier
from oodshape.moments import Moments
from oodshape.outputs import Head, Outputs
from oodshape.perturb import Odin
from oodshape.scores import Energy, FittedScore, ScoreRecipe
from oodshape.shaping import Identity, Shape, Shaper
from oodshape.stats import FeatureStats
from oodshape.training import Training
from oodshape.values import Value, decode, encode, frozen_array
from oodshape.wrap import GuardedNet, wrap


class Decision(NamedTuple):
    """For each image: the predicted class, the score, its p-value among ID images, and whether to trust it."""

    classes: Tensor  # [N] int64
    scores: Tensor  # [N] float32
    p_values: Tensor  # [N] float64
    accepted: Tensor  # [N] bool


@dataclass(frozen=True, eq=False, repr=False)
class Method(Value):
    """A recipe: perturb -> shape -> head -> score.

    >>> from oodshape.shaping import ReAct
    >>> Method(shape=ReAct(q=0.9))
    Method(shape=ReAct(q=0.9), head=Linear(), score=Energy(), perturb=Odin(eps=0.0, std=(1.0,), temperature=1000.0))
    """

    shape: Shaper = Identity()
    head: HeadRecipe = Linear()
    score: ScoreRecipe = Energy()
    perturb: Odin = Odin()

    def __post_init__(self) -> None:
        """Refuse a shape or a head that the score would never look at."""
        if self.score.reads_features and (self.shape, self.head) != (Identity(), Linear()):
            raise InputError(
                f"{type(self.score).__name__} reads the features themselves, as the network gives them; "
                "leave shape and head out, or choose a score of the logits"
            )

    @property
    def needs(self) -> frozenset[str]:
        """The parts of `Moments` that fitting looks at, beside `FeatureStats`."""
        return self.shape.needs | self.head.needs | self.score.needs

    @property
    def wants_panel(self) -> bool:
        """Whether fitting chooses by a panel (`panel.panel_features`)."""
        return self.score.wants_panel

    @property
    def exportable(self) -> bool:
        """Whether the fitted detector can go into a graph: `Detector.wrap`, and ONNX."""
        return all(slot.exportable for slot in (self.perturb, self.shape, self.head, self.score))

    def fit(
        self,
        train: Features | FeatureStats,
        head: Head | tuple[Any, Any] | None = None,
        moments: Moments | None = None,
        panel: Sequence[Features] = (),
    ) -> Detector:
        """The detector that this recipe gives on ID training data.

        Statistics alone may need the head too, and some methods the `Moments` of the same features. A `panel` of
        images that no classifier should trust (`surrogates`) is for recipes that choose by it.
        """
        training = Training.of(train, None if head is None else Head.of(head), moments, panel)
        if training.maybe_features is not None:
            training.moments(self.needs)  # one pass for all three slots
        return Detector(
            method=self,
            shape=self.shape.fit(training),
            head=self.head.fit(training),
            fingerprint=training.stats.head,
            n_train=training.stats.n,
            scorer=self.score.fit(training),
        )


def fit_all(methods: Mapping[str, Method], train: Features, panel: Sequence[Features] = ()) -> dict[str, Detector]:
    """Every method fitted on the same features, from one pass over them for all that any method needs.

    The `panel` is for those that choose by it.

    >>> train = Features.from_arrays([[1.0, 0.5], [0.5, 3.0]], head=([[1.0, 0.0], [0.0, 1.0]], None))
    >>> list(fit_all({"plain": Method()}, train))
    ['plain']
    """
    collect(methods, train)
    return {name: method.fit(train, panel=panel) for name, method in methods.items()}


def collect(methods: Mapping[str, Method], train: Features) -> None:
    """Go over the features once for all that any of the methods needs; the features keep it."""
    train.moments(frozenset().union(*(method.needs for method in methods.values())))


@dataclass(frozen=True, eq=False, repr=False)
class Detector(Value):
    """A fitted method, tied to one head; with held-out ID scores it also decides."""

    method: Method
    shape: Shape
    head: FittedHead
    fingerprint: str  # of the head that it was fitted for
    n_train: int
    calibration: NDArray[np.float32] | None = None  # held-out ID scores, ascending
    alpha: float | None = None  # the wanted share of falsely rejected ID images
    scorer: FittedScore | None = None  # None, as in old files: the method's own score, which learns nothing

    def __post_init__(self) -> None:
        """Freeze the calibration scores."""
        if self.scorer is None and isinstance(self.method.score, FittedScore):
            object.__setattr__(self, "scorer", self.method.score)
        if self.scorer is None:
            raise InputError(f"{type(self.method.score).__name__} has to be fitted: use Method(...).fit(train)")
        if self.calibration is not None:
            object.__setattr__(self, "calibration", frozen_array(self.calibration, np.float32))

    def score(self, data: Features | Outputs | Classifier, images: Tensor | None = None) -> Tensor:
        """[N] float32 scores, higher = more in-distribution: `score(features)` or `score(classifier, images)`."""
        if isinstance(data, Classifier):
            if images is None:
                raise InputError("score(classifier, images) needs the images")
            data = data(self.method.perturb(data, images))
        elif self.method.perturb.eps > 0:
            raise InputError(
                f"this detector perturbs images (eps = {self.method.perturb.eps:g}) and cannot work on features "
                "alone; give it a classifier and images, or use eps = 0"
            )
        self._check_head(data.head)
        layer = self.head.bind(data.head)
        scores = torch.empty(len(data), device=data.head.weight.device)
        assert self.scorer is not None
        for batch in self._batches(data):
            seen = Evidence(batch, self.shape, self.head, layer)
            scores[batch.first : batch.first + len(batch.raw)] = self.scorer.of(seen)
        if not bool(torch.isfinite(scores).all()):
            row = int((~torch.isfinite(scores)).to(torch.uint8).argmax())
            raise InputError(f"the score of row {row} is {float(scores[row])}: its features are too large")
        return scores

    def _batches(self, data: Features | Outputs) -> Iterator[Batch]:
        if isinstance(data, Outputs):
            yield Batch(data.features, data.head, given_logits=data.logits)
            return
        known = data.predictions if data.predictions_known else None
        whole = self.head.fuses(self.shape) and known is not None and not data.half
        buffer = torch.empty(data.chunk_rows(), data.width, device=data.head.weight.device)
        for first, raw in data.chunks(whole=whole):
            classes = None if known is None else known[first : first + len(raw)]
            yield Batch(raw, data.head, first, given_classes=classes, buffer=None if whole else buffer[: len(raw)])

    def _check_head(self, head: Head) -> None:
        if head.fingerprint != self.fingerprint:
            raise InputError(
                f"this detector was fitted for head {self.fingerprint}, the data come from head "
                f"{head.fingerprint}; fit it again for this checkpoint"
            )

    def calibrate(self, held_out: Features | Outputs | Any, alpha: float = 0.05) -> Detector:
        """The same detector with a threshold that falsely rejects at most a share alpha of ID images.

        `held_out` are ID data, or their scores, that were not used for fitting. The threshold is the
        floor(alpha (n + 1))-th smallest of the n scores (split conformal).
        """
        check_fraction("alpha", alpha)
        scores = self.score(held_out) if isinstance(held_out, (Features, Outputs)) else held_out
        calibrated = replace(
            self, calibration=np.sort(as_scores(scores, "calibration scores").astype(np.float32)), alpha=alpha
        )
        if calibrated._rank() < 1:
            needed = int(-(-(1 - Fraction(str(alpha))) // Fraction(str(alpha))))
            raise InputError(
                f"alpha = {alpha:g} needs at least {needed} held-out images, got {len(calibrated._held_out())}; "
                "give more images or a larger alpha"
            )
        return calibrated

    def _held_out(self) -> NDArray[np.float32]:
        if self.calibration is None:
            raise InputError("this detector has no threshold yet: call calibrate(held_out_id_data) first")
        return self.calibration

    def _rank(self) -> int:
        return int(Fraction(str(self.alpha)) * (len(self._held_out()) + 1))  # exact: 0.29 * 100 is 29

    @property
    def threshold(self) -> float:
        """The smallest score that is accepted."""
        return float(self._held_out()[self._rank() - 1])

    def p_values(self, scores: Tensor) -> Tensor:
        """[N] float64: the share of held-out ID images with a score as low, (1 + #{<= score}) / (n + 1)."""
        held_out = torch.tensor(self._held_out())
        below = torch.searchsorted(held_out, scores.detach().cpu().float().contiguous(), right=True)
        return (1.0 + below.double()) / (len(held_out) + 1)

    def decide(self, data: Features | Outputs | Classifier, images: Tensor | None = None) -> Decision:
        """Class, score, p-value and accepted for each image: `decide(features)` or `decide(classifier, images)`."""
        threshold = self.threshold
        scores = self.score(data, images)
        if isinstance(data, Classifier):
            assert images is not None  # score has refused it
            data = data(images)
        classes = data.predictions if isinstance(data, Features) else data.logits.argmax(dim=1)
        return Decision(classes, scores, self.p_values(scores), scores >= threshold)

    def wrap(self, net: nn.Module | Classifier, head: str | None = None) -> GuardedNet:
        """A module that runs the network once and gives logits, score and accepted: see `GuardedNet`."""
        return wrap(net, self, torch.tensor([self.threshold]), head)

    def save(self, path: str | Path) -> None:
        """Write the detector to one safetensors file; no code, no pickle."""
        tensors: dict[str, NDArray[Any]] = {}
        value = encode(self, tensors, "detector")
        header = {"method": repr(self.method), "head": self.fingerprint, "value": json.dumps(value)}
        files.save(path, "detector", header, tensors)

    @classmethod
    def load(cls, path: str | Path) -> Detector:
        """The detector that `save` wrote."""
        import_module("oodshape.methods")  # makes every type of the table known
        header, tensors = files.load(path, "detector")
        try:
            value = decode(json.loads(header["value"]), tensors)
        except (KeyError, TypeError, json.JSONDecodeError) as error:
            raise InputError(f"{path} is damaged: {error}") from None
        if not isinstance(value, cls):
            raise InputError(f"{path} holds a {type(value).__name__}, not a detector")
        return value
