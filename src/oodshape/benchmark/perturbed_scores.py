"""Scores of methods that perturb the images: a second pass through the network."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.progress import progress_bar
from oodshape.features.tensor_batches import hash_tensors
from oodshape.images.decode.prefetch import prefetch_rows
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.identity import Keys
from oodshape.images.sources.image_set import ImageSet, limit_images
from oodshape.images.sources.memory import iterate_prepared
from oodshape.methods.detector import Detector, Method
from oodshape.networks.classifier import Classifier

SEEN = 5000  # training images that a step learns from: what the authors of AdaSCALE take
BATCH = 64  # images at once: gradients take several times the memory of a forward pass


def fit_perturbation(
    method: Method,
    classifier: Classifier,
    images: ImageSet,
    preprocessing: Preprocessing,
    *,
    seed: int = 0,
    workers: int | None = None,
) -> Method:
    """The method, once its step in the image has seen at most 5,000 training images."""
    few = limit_images(images, SEEN, seed)
    with closing(prefetch_rows(few, preprocessing, range(len(few)), BATCH, workers)) as decoding:
        batches = (preprocessing.normalize(pixels) for _, pixels, _ in decoding)
        return replace(method, perturb=method.perturb.learned(classifier, batches))


def score_perturbed(
    detector: Detector,
    classifier: Classifier,
    images: ImageSet,
    preprocessing: Preprocessing,
    *,
    progress: bool | None = None,
    workers: int | None = None,
) -> Tensor:
    """[N] float32 scores of a detector that goes back to the images."""
    scores = torch.empty(len(images))
    decoding = prefetch_rows(images, preprocessing, range(len(images)), BATCH, workers)
    with progress_bar(f"{images.name} perturbed", len(images), progress) as report, closing(decoding):
        for rows, pixels, _ in decoding:
            scores[rows.start : rows.stop] = detector.score(classifier, preprocessing.normalize(pixels)).cpu()
            report(rows.stop)
    return scores


def score_tensors(detector: Detector, classifier: Classifier, batches: Any, identities: Keys) -> Tensor:
    """[N] float32 scores of tensors by a detector that goes back to the images, in the order of their identities.

    A loader is read once more, and may shuffle; one that gives other images now is refused.
    """
    found: dict[int, float] = {}
    for batch, _ in iterate_prepared(batches):
        for first in range(0, len(batch), BATCH):
            part = batch[first : first + BATCH]
            found |= zip(hash_tensors(part).tolist(), detector.score(classifier, part).tolist(), strict=True)
    try:
        return torch.tensor([found[key] for key in identities.tolist()])
    except KeyError:
        raise InputError(
            "this method reads images twice, and the loader gives other images the second time: turn random "
            "augmentation off, and give a loader that can be iterated again"
        ) from None
