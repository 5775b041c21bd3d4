"""Fitted: a detector that can decide, and all that is known about it: what every verb of a guard works on."""

from __future__ import annotations

import math
import warnings
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape.core.errors import HeadError, InputError
from oodshape.core.options import ModelOptions
from oodshape.core.values import Sizes, Value
from oodshape.guard.describe import describe_guarantee
from oodshape.guard.fit.sanity import Sanity
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.methods.detector import Detector
from oodshape.networks.classifier import Classifier
from oodshape.networks.device import Precision
from oodshape.networks.loading import Model, OpenNet, open_model, takes_num_classes

LARGEST = 1 << 26  # values of the fixed image: a damaged file may ask for any number
CLOSE = 0.02  # of the largest logit of the fixed image: other devices round by less


class About(Value):
    """What a guard knows about its network, images and options."""

    preprocessing: Preprocessing | None  # None: it was fitted on prepared tensors, and nothing says how
    network: str  # fingerprint of all weights
    held_out: bool  # whether the network was not trained on the calibration images
    classes: tuple[str, ...] = ()  # their names, where they are known
    method: str = ""  # its name in the table, where it has one
    model: str = ""  # as it was given: for messages only
    weights: str = ""
    head: str = ""  # the layer's name in the network
    native: Preprocessing | None = None  # what the model itself said when it was fitted
    upright: bool = False  # whether images are turned as their EXIF orientation says
    baseline: Detector | None = None  # a threshold on the softmax, fitted and calibrated on the same images
    version: str = ""  # of oodshape
    precision: Precision = "float32"  # in which the network ran
    input_shape: tuple[int, ...] | None = None  # of an image as the network takes it; None: images of several sizes
    sanity: Sanity | None = None  # scores of noise and constant images; None where they could not be made
    # text features of the classes, where they are the head: another machine would give them other last bits
    text: Annotated[NDArray[np.float32], Sizes("C T")] | None = None
    # sketches of the training images, of the calibration set, and of one that fit also selected methods by
    trained_on: Annotated[NDArray[np.uint64], Sizes("R")] | None = None
    calibrated_on: Annotated[NDArray[np.uint64], Sizes("Q")] | None = None
    selection: Annotated[NDArray[np.uint64], Sizes("S")] | None = None
    prints: Annotated[NDArray[np.float32], Sizes("P F")] | None = None  # of the training and selection images
    probe: Annotated[NDArray[np.float32], Sizes("L")] | None = None  # logits of a fixed image (`compute_probe`)


class Fitted(Value):
    """A fitted and calibrated detector with the preprocessing, the classes and the guarantee that belong to it."""

    detector: Detector
    about: About

    def __post_init__(self) -> None:
        self.detector.held_out()
        classes = self.detector.classes
        if self.classes and len(self.classes) != classes:
            raise InputError(f"the network has {classes} classes, but {len(self.classes)} names were given")

    def open_network(self, model: Model, opening: ModelOptions = ModelOptions()) -> OpenNet:
        """Open the network of this guard; raise InputError where it is not the one that the guard was fitted for."""
        about = self.about
        sized = opening.weights is not None and isinstance(model, str) and takes_num_classes(model)
        source = open_model(
            model,
            head=None if str(model).endswith(".pt2") else about.head or None,  # an archive's layers have no names
            num_classes=self.detector.classes if sized else None,
            classes=about.classes,
            text=None if about.text is None else torch.from_numpy(about.text.copy()),
            **(vars(opening) | {"precision": opening.precision or about.precision}),
        )
        if source.classifier.precision != about.precision:
            warnings.warn(
                f"this guard was fitted in {about.precision} and runs in {source.classifier.precision}: scores near "
                "the threshold may fall on its other side",
                stacklevel=3,
            )
        found = source.classifier.fingerprint
        if found != about.network:
            types = {str(weight.dtype).removeprefix("torch.") for weight in source.classifier.net.parameters()}
            other = sorted(types - {"float32"})
            copied = (
                f" (its weights are {', '.join(other)}: a copy in another type is another network)" if other else ""
            )
            raise InputError(
                f"this guard was fitted for the network {_named(about.model, about.weights, about.network)}, but got "
                f"{_named(source.spec, source.weights, found)}{copied}; give the same network and "
                "weights, or fit a new guard"
            )
        if about.probe is not None and about.input_shape is not None:
            probe = compute_probe(source.classifier, about.input_shape)
            near = max(CLOSE, source.classifier.rounding, 8 * torch.finfo(getattr(torch, about.precision)).eps)
            if (
                probe is None
                or probe.shape != about.probe.shape
                or not np.abs(probe - about.probe).max() <= near * np.abs(about.probe).max()
            ):
                raise InputError(
                    "this network has the weights of the guard's, but gives other logits: its layers or their settings "
                    "differ (an activation, a pooling, eps); give the network as it was, or fit a new guard"
                )
        if about.native is not None and source.native is not None and about.native != source.native:
            raise InputError(
                f"this guard was fitted with the preprocessing {about.native} of the network, but got {source.native}; "
                "preprocess the images in the same way, or fit a new guard"
            )
        return source

    @property
    def preprocessing(self) -> Preprocessing:
        """How images are prepared, or an error where that is not known."""
        if self.about.preprocessing is None:
            raise InputError(
                "this guard was fitted on prepared tensors and does not know how images are prepared: give tensors and "
                "prepared=True, or fit it with preprocessing=Preprocessing(...) too"
            )
        return self.about.preprocessing

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the network's order; empty where they are not known."""
        return self.about.classes

    @property
    def guarantee(self) -> str:
        """What the threshold guarantees, in one line."""
        scores, alpha = self.detector.held_out()
        return describe_guarantee(self.about.held_out, len(scores), alpha, per_class=self.detector.groups is not None)

    @property
    def sanity(self) -> str:
        """How much noise and how many constant images the guard accepts, in words; empty if not known."""
        return "" if self.about.sanity is None else self.about.sanity.line(self.detector)

    def label(self, number: int) -> str | int:
        """A class by its name, or by its number where names are not known."""
        return self.classes[number] if self.classes else number


def compute_probe(classifier: Classifier, shape: tuple[int, ...] | None) -> NDArray[np.float32] | None:
    """The logits [L] of a fixed image, which equal weights in other layers change; None if it cannot be run."""
    if shape is None or min(shape, default=0) < 1 or math.prod(shape) > LARGEST:
        return None
    image = torch.randn(1, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    try:
        return np.asarray(classifier(image).logits[0].cpu().numpy())
    except HeadError:
        raise
    except InputError:
        return None


def _named(spec: str, weights: str, fingerprint: str) -> str:
    loaded = f" with {Path(weights).name}" if weights else ""
    return f"{spec or 'given in Python'}{loaded} (fingerprint {fingerprint})"
