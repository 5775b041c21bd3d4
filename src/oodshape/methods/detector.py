"""Method, the recipe, and Detector, what fitting makes of it: scores, decisions, one file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oodshape.core import files
from oodshape.core.errors import InputError
from oodshape.core.values import Ascending, AtLeast, Sizes, Value, encode, frozen_array, load_values, sizes_inside
from oodshape.features.features import Features
from oodshape.features.moments import Moments
from oodshape.images.identity import hashed
from oodshape.methods.base import Batch, Evidence, FittedSlots, HeadRecipe, Identity, Recipe, ScoreRecipe, Shaper
from oodshape.methods.guarded_net import GuardedNet, wrap
from oodshape.methods.heads import Linear
from oodshape.methods.perturb.none import NoPerturbation, Step
from oodshape.methods.records import import_types
from oodshape.methods.scores.logits import Energy
from oodshape.methods.shapes.optfs import BySign, OptFS, warn_if_meaningless
from oodshape.methods.training import Training, TrainingData
from oodshape.metrics import conformal
from oodshape.metrics.detection import as_scores
from oodshape.networks.classifier import Classifier
from oodshape.networks.device import without_autocast
from oodshape.networks.head import Head, Outputs


class Decision(NamedTuple):
    """For each image: the predicted class, the score, its p-value among ID images, and whether to trust it."""

    classes: Tensor  # [N] int64
    scores: Tensor  # [N] float32
    p_values: Tensor  # [N] float64
    accepted: Tensor  # [N] bool


def predict_classes(data: Features | Outputs) -> Tensor:
    """[N] int64: the class that the network itself predicts."""
    return data.predictions if isinstance(data, Features) else data.logits.argmax(dim=1)


@dataclass(frozen=True, eq=False, repr=False)
class Method(Recipe):
    """A recipe: perturb -> shape -> head -> score.

    >>> from oodshape.methods.shapes.clipping import ReAct
    >>> Method(shape=ReAct(q=0.9))
    Method(shape=ReAct(q=0.9), head=Linear(), score=Energy(), perturb=NoPerturbation())
    """

    shape: Shaper = Identity()
    head: HeadRecipe = Linear()
    score: ScoreRecipe = Energy()
    perturb: Step = NoPerturbation()

    def __post_init__(self) -> None:
        """Refuse a shape or a head that the score would never look at."""
        if self.score.reads_features and (self.shape, self.head) != (Identity(), Linear()):
            raise InputError(
                f"{type(self.score).__name__} reads the features themselves, as the network gives them; "
                "leave shape and head out, or choose a score of the logits"
            )

    @property
    def perturbs(self) -> bool:
        """Whether it perturbs images, so that it needs these and a classifier in place of features."""
        return not isinstance(self.perturb, NoPerturbation)

    def unlabelled(self) -> Method:
        """The same method with classes that the network predicts."""
        return replace(self, score=self.score.unlabelled())

    @without_autocast()
    def fit(
        self,
        train: TrainingData,
        head: Head | tuple[Any, Any] | None = None,
        moments: Moments | None = None,
        proxy: Sequence[Features] = (),
        held_out: Features | None = None,
    ) -> Detector:
        """The detector that this recipe gives on ID training data.

        Statistics alone may need the head too, and some methods the `Moments` of the same features; `Summed` has all
        of it, as it adds up over parts. A `proxy` of
        images that no classifier should trust (`proxy_features`) is for recipes that choose by it; `held_out` are ID
        images for them to choose by in place of a part of `train`, and must not be those that set the threshold.
        """
        training = Training.of(train, None if head is None else Head.of(head), moments, proxy, held_out)
        needs = self.needs
        if isinstance(self.shape, (OptFS, BySign)):
            warn_if_meaningless(training)
        if needs and training.maybe_features is not None:
            training.moments(needs)  # one pass for all three slots
        return Detector(
            method=self,
            shape=self.shape.fit(training),
            head=self.head.fit(training),
            fingerprint=training.fingerprint,
            n_train=training.n,
            scorer=self.score.fit(training),
            classes=None if training.maybe_head is None else training.maybe_head.classes,
        )


@dataclass(frozen=True, eq=False, repr=False)
class Detector(FittedSlots):
    """A fitted method, tied to one head; with held-out ID scores it also decides."""

    method: Method
    n_train: Annotated[int, AtLeast(1)]
    calibration: Annotated[NDArray[np.float32], Sizes("N"), Ascending()] | None = None  # held-out ID scores
    alpha: float | None = None  # the wanted share of falsely rejected ID images
    # the predicted class of each held-out image: a threshold per class
    groups: Annotated[NDArray[np.int32], Sizes("N"), AtLeast(0)] | None = None
    classes: Annotated[int, AtLeast(1)] | None = None  # of the head; None: fitted from statistics without it

    def __post_init__(self) -> None:
        """Freeze the calibration scores, and refuse a promise that cannot be kept."""
        if self.calibration is not None:
            object.__setattr__(self, "calibration", frozen_array(self.calibration, np.float32))
        if self.groups is not None:
            object.__setattr__(self, "groups", frozen_array(self.groups, np.int32))
        if (self.calibration is None) != (self.alpha is None) or (self.groups is not None and self.alpha is None):
            raise InputError("calibration scores and alpha come together, and groups only with them")
        if self.calibration is not None and self.alpha is not None:
            conformal.check_enough(len(self.calibration), self.alpha)
        if self.classes is not None and self.classes > conformal.MOST_CLASSES:
            raise InputError(f"a detector has at most {conformal.MOST_CLASSES:,} classes, got {self.classes}")
        if self.groups is not None and self.classes is not None and not (self.groups < self.classes).all():
            raise InputError(f"a calibration image has the class {self.groups.max()}, there are {self.classes}")

    @without_autocast()
    def score(self, data: Features | Outputs | Classifier, images: Tensor | None = None) -> Tensor:
        """[N] float32 scores, higher = more in-distribution: `score(features)` or `score(classifier, images)`."""
        if isinstance(data, Classifier):
            data = self.method.perturb.outputs(data, _needed(images))
        else:
            self.check_features(data)
        self._check_head(data.head)
        scores = self._scores(data)
        check_scores(scores)
        return scores

    def check_features(self, data: Features | Outputs) -> None:
        """Refuse features that this detector cannot score."""
        if self.method.perturbs:
            raise InputError(
                f"this detector perturbs images ({type(self.method.perturb).__name__}) and cannot score features "
                "alone; give it a classifier and images"
            )
        self._check_head(data.head)

    def _scores(self, data: Features | Outputs) -> Tensor:
        """[N] float32 on the device of the head."""
        layer = self.head.bind(data.head)
        scores = torch.empty(len(data), device=data.head.weight.device)
        for batch in batches(data, whole=self.head.fuses(self.shape)):
            seen = Evidence(batch, self.shape, self.head, layer)
            scores[batch.first : batch.first + len(batch.raw)] = self.scorer.of(seen)
            del batch, seen  # before the next one asks for memory
        return scores

    def _check_head(self, head: Head) -> None:
        if head.fingerprint != self.fingerprint:
            raise InputError(
                f"this detector was fitted for head {self.fingerprint}, the data come from head "
                f"{head.fingerprint}; fit it again for this checkpoint"
            )
        if self.classes not in (None, head.classes):
            raise InputError(f"this detector is damaged: it has {self.classes} classes, the head {head.classes}")
        for kind, letter, size in self._sizes:
            wanted = {"M": head.width, "C": head.classes}.get(letter, size)
            if size != wanted:
                raise InputError(f"this detector is damaged: its {kind} has {size} for {letter}, the head {wanted}")

    @cached_property
    def _sizes(self) -> tuple[tuple[str, str, int], ...]:
        """What the fitted arrays say about the head."""
        return tuple(sizes_inside((self.shape, self.head, self.scorer)))

    def calibrate(
        self, held_out: Features | Outputs | Any, alpha: float = 0.05, *, per_class: bool = False
    ) -> Detector:
        """The same detector with a threshold that falsely rejects at most a share alpha of ID images.

        `held_out` are ID data, or their scores, that were not used for fitting; rows with equal features are one image
        and count once. The threshold is the
        floor(alpha (n + 1))-th smallest of the n scores (split conformal). `per_class` sets one for each
        predicted class that has enough images, so that the guarantee holds within it; the others share one from a pool
        of their images, which takes in the smallest class with enough if they are too few together.
        """
        data = held_out if isinstance(held_out, (Features, Outputs)) else None
        if data is None:
            scores = as_scores(held_out, "calibration scores").astype(np.float32)
            kept = np.arange(len(scores))
        else:
            scores = self.score(data).detach().cpu().numpy()
            kept = np.flatnonzero(~_repeated(data))
            warn_of_repeated(len(scores) - len(kept), len(scores))
        if len(scores) > 1 and scores.min() == scores.max():
            warnings.warn(
                f"all {len(scores)} calibration scores are equal: this method does not tell these images apart, "
                "and the threshold rejects nothing or everything; choose another method",
                stacklevel=2,
            )
        order, groups = kept[np.argsort(scores[kept], kind="stable")], None
        if per_class:
            if data is None:
                raise InputError("thresholds per class need the predicted classes: give calibrate the data, not scores")
            groups = predict_classes(data).cpu().numpy()[order].astype(np.int32)
        classes = self.classes if data is None else data.head.classes
        return replace(self, calibration=scores[order], alpha=alpha, groups=groups, classes=classes)

    def held_out(self) -> tuple[NDArray[np.float32], float]:
        """The held-out scores, ascending, and alpha, or an error that says how to set a threshold."""
        if self.calibration is None or self.alpha is None:
            raise InputError("this detector has no threshold yet: call calibrate(held_out_id_data) first")
        return self.calibration, self.alpha

    @property
    def threshold(self) -> float:
        """The smallest score that is accepted, where the predicted class has no threshold of its own."""
        return conformal.threshold(self.class_scores[conformal.POOL], self.held_out()[1])

    @property
    def thresholds(self) -> Tensor:
        """[C] float32: the smallest accepted score for each predicted class; all equal unless set per class."""
        if self.classes is None:
            raise InputError("the number of classes is not known: calibrate with Features, not with scores")
        return self.limits.expand(self.classes)

    @property
    def limits(self) -> Tensor:
        """[C] float32, the thresholds, where they are set per class; [1], the threshold, where they are not."""
        return torch.from_numpy(conformal.limits(*self.held_out(), self.groups, self.classes or 0))

    @cached_property
    def class_scores(self) -> dict[int, NDArray[np.float32]]:
        """The calibration scores of each predicted class with a threshold of its own; `POOL`: those of all others."""
        scores, alpha = self.held_out()
        return {conformal.POOL: scores} if self.groups is None else conformal.by_class(scores, self.groups, alpha)

    def p_values(self, scores: Tensor, classes: Tensor | None = None) -> Tensor:
        """[N] float64: the share of held-out ID images with a score as low, (1 + #{<= score}) / (n + 1).

        With thresholds per class, those of the same predicted class, or of the pool: `classes` [N] says which.
        """
        values = conformal.p_values(self.class_scores[conformal.POOL], scores)
        if self.groups is not None and classes is None:
            raise InputError("this detector has thresholds per class: give p_values(scores, classes)")
        for label, own in self.class_scores.items():
            if label != conformal.POOL:
                rows = (classes == label).cpu()  # type: ignore[union-attr]
                values[rows] = conformal.p_values(own, scores.cpu()[rows])
        return values

    def decide(self, data: Features | Outputs | Classifier, images: Tensor | None = None) -> Decision:
        """Class, score, p-value and accepted for each image: `decide(features)` or `decide(classifier, images)`."""
        limits = self.limits
        seen = data(_needed(images)) if isinstance(data, Classifier) else data
        scores = self.score(data, images) if self.method.perturbs else self.score(seen)
        classes = predict_classes(seen)
        limits = limits if len(limits) == 1 else limits[classes.cpu()]
        return Decision(classes, scores, self.p_values(scores, classes), scores >= limits.to(scores.device))

    def wrap(self, net: nn.Module | Classifier, head: str | None = None, probe: Tensor | None = None) -> GuardedNet:
        """A module that runs the network once and gives logits, score and accepted: see `GuardedNet`.

        A `probe`, some images as the network takes them, finds a head that is linear and no nn.Linear.
        """
        return wrap(net, self, self.limits, head, probe)

    def save(self, path: str | Path, **more: Any) -> None:
        """Write the detector to one safetensors file; no code, no pickle. `more`: values kept next to it, by name."""
        tensors: dict[str, NDArray[Any]] = {}
        said = {"value": encode(self, tensors, "detector")} | {k: encode(v, tensors, k) for k, v in more.items()}
        header = {"method": repr(self.method), "head": self.fingerprint} | {k: json.dumps(v) for k, v in said.items()}
        files.save(path, "detector", header, tensors)

    @classmethod
    def load(cls, path: str | Path, *, trust_code: bool = False) -> Detector:
        """Read the detector of a file; `trust_code` imports the modules of custom methods that the file names."""
        [value] = load_values(path, "detector", "value", trust_code=trust_code)
        if not isinstance(value, cls):
            raise InputError(f"{path} holds a {type(value).__name__}, not a detector; {files.WAY_OUT['detector']}")
        return value


def _repeated(data: Features | Outputs) -> NDArray[np.bool_]:
    """[N]: whether a row has the features of an earlier one; rows of one value (a dead layer's zeros) do not count."""
    chunks = (raw for _, raw in data.chunks()) if isinstance(data, Features) else iter([data.features])
    found = [(hashed(rows), rows.min(axis=1) < rows.max(axis=1)) for rows in (raw.cpu().numpy() for raw in chunks)]
    keys, varied = (np.concatenate(each) for each in zip(*found, strict=True))
    varied[np.unique(keys, return_index=True)[1]] = False
    return varied


def warn_of_repeated(count: int, total: int) -> None:
    """Warn of calibration images that are copies of others: they would make the guarantee look better than it is."""
    if count:
        warnings.warn(
            f"{count:,} of the {total:,} calibration images are copies of others: the {total - count:,} distinct "
            "images are used, and the guarantee is for images like these. If your images repeat too, all copies of one "
            "get the same decision, and the rejection rate over copies can exceed alpha",
            stacklevel=4,
        )


Value.later.append(import_types)


def _needed(images: Tensor | None) -> Tensor:
    if images is None:
        raise InputError("a classifier needs images: score(classifier, images), decide(classifier, images)")
    return images


PARTS = 2  # of a chunk: a score makes several copies of a batch; products of fewer rows would take longer


def batches(data: Features | Outputs, *, whole: bool = False) -> Iterator[Batch]:
    """The rows in batches; `whole` asks for a single one where it needs no room of its own."""
    if isinstance(data, Outputs):
        yield Batch(data.features, data.head, given_logits=data.logits)
        return
    known = data.predictions if data.predictions_known else None
    whole = whole and known is not None and not data.half
    buffer: Tensor | None = None  # one for all, as large as the first
    for first, raw in data.chunks(whole=whole, parts=PARTS):
        classes = None if known is None else known[first : first + len(raw)]
        if not whole:
            buffer = torch.empty(raw.shape, device=data.head.weight.device) if buffer is None else buffer[: len(raw)]
        yield Batch(raw, data.head, first, given_classes=classes, buffer=buffer)


def check_scores(scores: Tensor) -> None:
    """Refuse NaN and infinite scores, naming the row."""
    if not bool(torch.isfinite(scores).all()):
        row = int((~torch.isfinite(scores)).to(torch.uint8).argmax())
        raise InputError(f"the score of row {row} is {float(scores[row])}: its features are too large")
