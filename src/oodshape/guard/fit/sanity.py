"""Sanity check: whether a fitted guard rejects noise and constant images."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Annotated

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.values import AtLeast, Sizes, Value
from oodshape.features.features import Features
from oodshape.features.proxy import draw_matched_noise
from oodshape.features.training_sums import TrainingSums
from oodshape.guard.describe import acceptance_rates, describe_sanity
from oodshape.images.datasets.synthetic import NOISE_IMAGES, draw_constants, draw_noise
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.methods.detector import Detector
from oodshape.methods.fit_all import fit_each
from oodshape.methods.registry import METHODS
from oodshape.networks.classifier import Classifier

HIGH = 0.2  # an acceptance rate above it is a warning
ALTERNATIVES = ("mds++", "knn", "vim")  # methods that measure distances, tried in this order for the warning
Batches = Callable[[], Iterator[Tensor]]  # noise, then constant images, NOISE_IMAGES at a time


class Sanity(Value):
    """Scores and predicted classes of noise images, then of constant images: rates follow from any threshold."""

    noise: Annotated[int, AtLeast(1)]  # how many of them are noise
    scores: Annotated[NDArray[np.float32], Sizes("N")]
    classes: Annotated[NDArray[np.int32], Sizes("N"), AtLeast(0)]

    def accepted(self, detector: Detector) -> dict[str, float]:
        """The acceptance rate of each kind of image."""
        return acceptance_rates(self.noise, self.scores, self.classes, detector.limits.numpy())

    def line(self, detector: Detector) -> str:
        """The rates in words."""
        return describe_sanity(self.accepted(detector))


def sanity_images(preprocessing: Preprocessing, size: tuple[int, int]) -> Iterator[Tensor]:
    """Noise and constant images of the size of prepared images (height, width), normalised as the network's images."""
    for make in (draw_noise, draw_constants):
        pixels = make(*size, preprocessing.channels)
        for first in range(0, len(pixels), NOISE_IMAGES):
            yield preprocessing.normalize(pixels[first : first + NOISE_IMAGES])


def sanity_tensors(images: Tensor) -> Iterator[Tensor]:
    """Gaussian noise with the mean and standard deviation of prepared tensors [N, C, ...], channel by channel."""
    if images.is_floating_point() and images.ndim > 1:
        yield draw_matched_noise(images, 0)


def check_sanity(
    classifier: Classifier, detector: Detector, batches: Batches, train: Features | TrainingSums, calibration: Features
) -> Sanity | None:
    """Send noise and constant images through network and detector; warn if many of them are accepted.

    None where there is nothing to send, or where the network cannot process it.
    """
    try:
        found = [detector.decide(classifier, batch) for batch in batches()]
    except InputError:
        return None
    if not found:
        return None
    scores, classes = (torch.cat([getattr(each, name) for each in found]).cpu() for name in ("scores", "classes"))
    sanity = Sanity(min(len(scores), 2 * NOISE_IMAGES), scores.numpy(), classes.numpy().astype(np.int32))
    if max(sanity.accepted(detector).values()) > HIGH:
        other = _rejecting(classifier, batches, train, calibration, detector.held_out()[1])
        advice = f"{other} rejects them: fit with --method {other}" if other else "compare methods on your OOD images"
        warnings.warn(f"the guard {sanity.line(detector)}; {advice}", stacklevel=4)
    return sanity


def _rejecting(
    classifier: Classifier, batches: Batches, train: Features | TrainingSums, calibration: Features, alpha: float
) -> str:
    """The first of ALTERNATIVES that accepts at most HIGH of either kind; empty if none does."""
    try:
        seen = Features.extract(classifier, batches(), prepared=True, progress=False)
        methods = {name: METHODS[name].unlabelled() for name in ALTERNATIVES}
        fitted = dict(fit_each(methods, train if isinstance(train, Features) else train.every))
        for name in ALTERNATIVES:
            detector = fitted[name]
            if isinstance(detector, Detector):
                accepted = detector.calibrate(calibration, alpha).decide(seen).accepted.double()
                kinds = accepted[: 2 * NOISE_IMAGES], accepted[2 * NOISE_IMAGES :]
                if max(float(kind.mean()) for kind in kinds if len(kind)) <= HIGH:
                    return name
    except InputError:  # statistics that were collected for another method
        pass
    return ""
