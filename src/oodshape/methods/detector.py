"""Method, the recipe, and Detector, what fitting makes of it: scores, decisions, one file."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from oodshape.core import files
from oodshape.core.errors import HeadError, InputError
from oodshape.core.values import Ascending, AtLeast, Sizes, Value, copy_frozen, encode_value, list_sizes, load_values
from oodshape.features.features import Features
from oodshape.images.identity import hash_each
from oodshape.methods.guarded_net import GuardedNet, wrap_network
from oodshape.methods.heads import Linear
from oodshape.methods.perturb.step import NoPerturbation, Step
from oodshape.methods.records import import_method_types
from oodshape.methods.scores.logits import Energy
from oodshape.methods.shapes.optfs import BySign, OptFS, warn_if_meaningless
from oodshape.methods.slots import Batch, Evidence, FittedSlots, HeadRecipe, Identity, Recipe, ScoreRecipe, Shaper
from oodshape.methods.training_set import Training, TrainingData
from oodshape.metrics import conformal
from oodshape.metrics.detection import as_scores
from oodshape.networks.classifier import Classifier
from oodshape.networks.device import without_autocast
from oodshape.networks.head import Head, Outputs


class Decision(NamedTuple):
    """For each image: the predicted class, the score, its p-value, and whether it is accepted.

    >>> head = ([[1.0, 0.0], [0.0, 1.0]], None)
    >>> train = Features.from_arrays([[2.0, 0.5], [0.5, 3.0]], head)
    >>> detector = Method().fit(train).calibrate([1.0, 1.5, 2.0], alpha=0.25)
    >>> detector.decide(Features.from_arrays([[4.0, 0.0]], head)).classes
    tensor([0])

    Attributes:
        classes: [N] int64 predicted classes.
        scores: [N] float32, higher = more in-distribution.
        p_values: [N] float64.
        accepted: [N] bool.
    """

    classes: Tensor  # [N] int64
    scores: Tensor  # [N] float32
    p_values: Tensor  # [N] float64
    accepted: Tensor  # [N] bool


def _predict_classes(data: Features | Outputs) -> Tensor:
    """[N] int64: the class that the network itself predicts."""
    return data.predictions if isinstance(data, Features) else data.logits.argmax(dim=1)


class Method(Recipe):
    """A recipe: perturb -> shape -> head -> score.

    >>> from oodshape.methods.shapes.clipping import ReAct
    >>> Method(shape=ReAct(q=0.9))
    Method(shape=ReAct(q=0.9), head=Linear(), score=Energy(), perturb=NoPerturbation())

    Args:
        shape: Shapes the features.
        head: Turns shaped features into logits.
        score: Turns logits and features into one score per image.
        perturb: Changes the image before the network sees it.
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
        """Ignore labels.

        Returns:
            The same method with the classes that the network predicts.
        """
        return replace(self, score=self.score.unlabelled())

    @without_autocast()
    def fit(self, train: TrainingData, proxy: Sequence[Features] = (), held_out: Features | None = None) -> Detector:
        """Fit the method on ID training data.

        Args:
            train: Features, or sums over them (`Sums`, `TrainingSums`).
            proxy: Features of proxy OOD images (`proxy_features`), for methods that select by them.
            held_out: Features of ID images to select by instead of a part of `train`; not the calibration set.

        Returns:
            The fitted detector, without a threshold.
        """
        training = Training.of(train, proxy, held_out)
        needs = self.needs
        if isinstance(self.shape, (OptFS, BySign)):
            warn_if_meaningless(training)
        if needs and training.maybe_features is not None:
            training.moments(needs)  # one pass for all three slots
        return Detector(
            method=self,
            shape=self.shape.fit(training),
            head=self.head.fit(training),
            fingerprint=training.head.fingerprint,
            n_train=training.n,
            scorer=self.score.fit(training),
            classes=training.head.classes,
        )


class Detector(FittedSlots):
    """A fitted method, tied to one head; after `calibrate` it also decides.

    >>> head = ([[1.0, 0.0], [0.0, 1.0]], None)
    >>> train = Features.from_arrays([[2.0, 0.5], [0.5, 3.0], [1.0, 0.2]], head)
    >>> detector = Method().fit(train).calibrate([1.0, 1.5, 2.0, 2.5], alpha=0.25)
    >>> detector.decide(Features.from_arrays([[4.0, 0.0], [0.1, 0.0]], head)).accepted
    tensor([ True, False])

    Attributes:
        method: The recipe.
        n_train: Number of training images.
        classes: Number of classes of the head.
        calibration: Calibration scores, ascending.
        alpha: Upper bound on the expected fraction of ID images that are rejected by mistake.
        groups: Predicted class of each calibration score, for thresholds per class.
    """

    method: Method
    n_train: Annotated[int, AtLeast(1)]
    classes: Annotated[int, AtLeast(1)]  # of the head
    calibration: Annotated[NDArray[np.float32], Sizes("N"), Ascending()] | None = None  # held-out ID scores
    alpha: float | None = None  # the wanted share of falsely rejected ID images
    # the predicted class of each held-out image: a threshold per class
    groups: Annotated[NDArray[np.int32], Sizes("N"), AtLeast(0)] | None = None

    def __post_init__(self) -> None:
        """Freeze the calibration scores, and refuse an alpha that they cannot guarantee."""
        if self.calibration is not None:
            object.__setattr__(self, "calibration", copy_frozen(self.calibration, np.float32))
        if self.groups is not None:
            object.__setattr__(self, "groups", copy_frozen(self.groups, np.int32))
        if (self.calibration is None) != (self.alpha is None) or (self.groups is not None and self.alpha is None):
            raise InputError("calibration scores and alpha come together, and groups only with them")
        if self.calibration is not None and self.alpha is not None:
            conformal.check_enough(len(self.calibration), self.alpha)
        if self.classes > conformal.MOST_CLASSES:
            raise InputError(f"a detector has at most {conformal.MOST_CLASSES:,} classes, got {self.classes}")
        if self.groups is not None and not (self.groups < self.classes).all():
            raise InputError(f"a calibration image has the class {self.groups.max()}, there are {self.classes}")

    @without_autocast()
    def score(self, data: Features | Outputs | Classifier, images: Tensor | None = None) -> Tensor:
        """Score images: `score(features)` or `score(classifier, images)`.

        Args:
            data: Features, outputs of the network, or the network.
            images: [N, ...] tensors, if `data` is the network.

        Returns:
            [N] float32 scores, higher = more in-distribution.
        """
        if isinstance(data, Classifier):
            data = self.method.perturb.outputs(data, _needed(images))
            self._check_head(data.head)
        else:
            self.check_features(data)
        scores = self._scores(data)
        check_scores(scores)
        return scores

    def check_features(self, data: Features | Outputs) -> None:
        """Refuse features that this detector cannot score.

        Args:
            data: Features or outputs of a network.

        Raises:
            InputError: If they belong to another head, or the method needs the images.
        """
        if self.method.perturbs:
            raise InputError(
                f"this detector perturbs images ({type(self.method.perturb).__name__}) and cannot score features "
                "alone; give it a classifier and images"
            )
        self._check_head(data.head)

    def _scores(self, data: Features | Outputs) -> Tensor:
        """[N] float32 on the device of the head."""
        layer = self.head.bind(data.head)
        scores = data.head.weight.new_empty(len(data))
        for batch in iterate_batches(data, whole=self.head.fuses(self.shape)):
            seen = Evidence(batch, self.shape, self.head, layer)
            scores[batch.first : batch.first + len(batch.raw)] = self.scorer.of(seen)
            del batch, seen  # before the next one asks for memory
        return scores

    def _check_head(self, head: Head) -> None:
        if head.fingerprint != self.fingerprint:
            raise HeadError(
                f"this detector was fitted for head {self.fingerprint}, the data come from head "
                f"{head.fingerprint}; fit it again for this checkpoint"
            )
        if self.classes != head.classes:
            raise HeadError(f"this detector is damaged: it has {self.classes} classes, the head {head.classes}")
        for kind, letter, size in self._sizes:
            wanted = {"M": head.width, "C": head.classes}.get(letter, size)
            if size != wanted:
                raise HeadError(f"this detector is damaged: its {kind} has {size} for {letter}, the head {wanted}")

    @cached_property
    def _sizes(self) -> tuple[tuple[str, str, int], ...]:
        """What the fitted arrays say about the head."""
        return tuple(list_sizes((self.shape, self.head, self.scorer)))

    def calibrate(
        self, held_out: Features | Outputs | Any, alpha: float = 0.05, *, per_class: bool = False
    ) -> Detector:
        """Set the threshold on ID data that were not used for fitting.

        The threshold is the floor(alpha (n + 1))-th smallest of the n scores (split conformal). Rows with equal
        features count as one image.

        Args:
            held_out: Features or outputs of ID images, or their scores.
            alpha: Upper bound on the expected fraction of ID images that are rejected by mistake.
            per_class: Set a threshold for each predicted class with enough images, so that the guarantee holds within
                the class. The other classes share a threshold; if they have too few images together, the smallest class
                with enough images joins them.

        Returns:
            The same detector with a threshold.

        Raises:
            InputError: If there are too few images for alpha.
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
            groups = _predict_classes(data).cpu().numpy()[order].astype(np.int32)
        return replace(self, calibration=scores[order], alpha=alpha, groups=groups)

    def held_out(self) -> tuple[NDArray[np.float32], float]:
        """Return the calibration scores and alpha.

        Returns:
            The scores, ascending, and alpha.

        Raises:
            InputError: If the detector is not calibrated.
        """
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
        return self.limits.expand(self.classes)

    @property
    def limits(self) -> Tensor:
        """[C] float32, the thresholds, where they are set per class; [1], the threshold, where they are not."""
        return torch.from_numpy(conformal.class_limits(*self.held_out(), self.groups, self.classes))

    @cached_property
    def class_scores(self) -> dict[int, NDArray[np.float32]]:
        """The calibration scores of each predicted class with a threshold of its own; `POOL`: those of all others."""
        scores, alpha = self.held_out()
        return conformal.group_by_class(scores, self.groups, alpha)

    def p_values(self, scores: Tensor, classes: Tensor | None = None) -> Tensor:
        """Compute conformal p-values: (1 + number of calibration scores <= score) / (n + 1).

        Args:
            scores: [N] scores.
            classes: [N] predicted classes, needed for thresholds per class.

        Returns:
            [N] float64 p-values.

        Raises:
            InputError: If the detector is not calibrated, or the classes are missing.
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
        """Decide on images: `decide(features)` or `decide(classifier, images)`.

        Args:
            data: Features, outputs of the network, or the network.
            images: [N, ...] tensors, if `data` is the network.

        Returns:
            Class, score, p-value and accepted for each image.
        """
        limits = self.limits
        seen = data(_needed(images)) if isinstance(data, Classifier) else data
        scores = self.score(data, images) if self.method.perturbs else self.score(seen)
        classes = _predict_classes(seen)
        limits = limits if len(limits) == 1 else limits[classes.cpu()]
        return Decision(classes, scores, self.p_values(scores, classes), scores >= limits.to(scores.device))

    def wrap(self, net: nn.Module | Classifier, head: str | None = None, probe: Tensor | None = None) -> GuardedNet:
        """Make a module that runs the network once and returns logits, score and accepted: see `GuardedNet`.

        Args:
            net: The network that the detector was fitted for.
            head: The dotted name of its head, if it cannot be found by value.
            probe: Images [N, ...] by which a head that is not an nn.Linear is found.

        Returns:
            The module.
        """
        return wrap_network(net, self, self.limits, head, probe)

    def save(self, path: str | Path, **more: Any) -> None:
        """Write the detector to one safetensors file, without code or pickles.

        Args:
            path: The file to write.
            more: Further values to keep in the file, by name.
        """
        tensors: dict[str, NDArray[Any]] = {}
        said = {"value": encode_value(self, tensors, "detector")} | {
            k: encode_value(v, tensors, k) for k, v in more.items()
        }
        about = {"method": repr(self.method), "head": str(self.fingerprint)}
        files.save_file(path, "detector", about | {k: json.dumps(v) for k, v in said.items()}, tensors)

    @classmethod
    def load(cls, path: str | Path, *, trust_code: bool = False) -> Detector:
        """Read the detector from a file.

        Args:
            path: A file that `Detector.save` or `Guard.save` wrote.
            trust_code: Import the modules of custom methods that the file names.

        Returns:
            The detector.

        Raises:
            InputError: If the file is damaged, has no detector, or names code that is not trusted.
        """
        [value] = load_values(path, "detector", "value", trust_code=trust_code)
        if not isinstance(value, cls):
            raise InputError(f"{path} holds a {type(value).__name__}, not a detector; {files.WAY_OUT['detector']}")
        return value


def _repeated(data: Features | Outputs) -> NDArray[np.bool_]:
    """[N]: whether a row has the features of an earlier one; rows of one value (a dead layer's zeros) do not count."""
    chunks = (raw for _, raw in data.chunks()) if isinstance(data, Features) else iter([data.features])
    found = [(hash_each(rows), rows.min(axis=1) < rows.max(axis=1)) for rows in (raw.cpu().numpy() for raw in chunks)]
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


Value.later.append(import_method_types)


def _needed(images: Tensor | None) -> Tensor:
    if images is None:
        raise InputError("a classifier needs images: score(classifier, images), decide(classifier, images)")
    return images


PARTS = 2  # of a chunk: a score makes several copies of a batch; products of fewer rows would take longer


def iterate_batches(data: Features | Outputs, *, whole: bool = False) -> Iterator[Batch]:
    """Iterate over rows in batches; `whole` asks for a single batch if that needs no extra memory."""
    if isinstance(data, Outputs):
        yield Batch(data.features, data.head, given_logits=data.logits)
        return
    known = data.predictions if data.predictions_known else None
    whole = whole and known is not None and not data.half
    buffer: Tensor | None = None  # one for all, as large as the first
    for first, raw in data.chunks(whole=whole, parts=PARTS):
        classes = None if known is None else known[first : first + len(raw)]
        if not whole:
            buffer = data.head.weight.new_empty(raw.shape) if buffer is None else buffer[: len(raw)]
        yield Batch(raw, data.head, first, given_classes=classes, buffer=buffer)


def check_scores(scores: Tensor) -> None:
    """Refuse NaN and infinite scores, naming the row."""
    if not bool(torch.isfinite(scores).all()):
        row = int((~torch.isfinite(scores)).to(torch.uint8).argmax())
        raise InputError(f"the score of row {row} is {float(scores[row])}: its features are too large")
