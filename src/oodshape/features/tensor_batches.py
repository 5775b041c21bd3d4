"""Run batches of tensors through a network in one pass: nothing is read twice, because a loader may shuffle."""

from __future__ import annotations

import heapq
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.progress import progress_bar
from oodshape.features.chunks import check_finite
from oodshape.images import identity
from oodshape.images.decode.preprocessing import check_shape
from oodshape.images.identity import Keys
from oodshape.images.sources.memory import count_prepared, prepared_batches
from oodshape.networks.classifier import Classifier


@dataclass(frozen=True, eq=False)
class SeenTensors:
    """The features, predictions, labels and identities of a stream of tensors, and some of the images."""

    features: NDArray[Any]  # [N, M]
    predictions: NDArray[np.int64]  # [N]
    labels: NDArray[np.int64]  # [N], -1: none
    identities: Keys  # [N], by content
    kept: Tensor  # [K, ...]: images, of the size of the first
    kept_rows: NDArray[np.int64]  # [K]: their rows, by ascending keys
    shape: tuple[int, ...] | None  # of every image; None: they differ

    def check_one_size(self) -> None:
        """Refuse images of several sizes, for a method that makes images of them."""
        if self.shape is None:
            raise InputError("prepared images must have one size for this method: choose another")


def run_tensors(
    classifier: Classifier,
    images: Any,
    dtype: str = "float32",
    *,
    keep: int = 0,
    shape: tuple[int, ...] | None = None,
    progress: bool | None = None,
) -> SeenTensors:
    """Run batches of tensors, each image of this `shape`, through the network; keep some, selected by identity."""
    parts: list[tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64], Keys]] = []
    subset, first, shapes = _Subset(keep), 0, set[tuple[int, ...]]()
    with progress_bar("prepared images", count_prepared(images), progress) as report:
        for place, (batch, labels) in enumerate(prepared_batches(images)):
            shapes.add(tuple(batch.shape[1:]))
            try:
                check_shape(batch.shape[1:], shape)
                outputs = classifier(batch)
                if place == 0 and len(batch) > 1:
                    classifier.check_repeatable(batch[:2])
            except InputError as error:
                raise InputError(f"batch {place}: {error}") from None
            values = outputs.features.cpu()
            check_finite(values, first)
            which = tensor_identities(batch)
            subset.add(batch, which, first)
            classes = outputs.logits.argmax(dim=1).cpu().numpy()
            parts.append((values.to(getattr(torch, dtype)).numpy(), classes, labels, which))
            first += len(batch)
            report(first)
    if not parts:
        raise InputError("there is no batch: the iterable is empty, or was used up before")
    features, predictions, labels, identities = (np.concatenate(each) for each in zip(*parts, strict=True))
    only = shapes.pop() if len(shapes) == 1 else None
    return SeenTensors(features, predictions, labels, identities, *subset.result(), only)


def tensor_identities(batch: Tensor) -> Keys:
    """Return [N]: a hash of the values of each image."""
    return identity.hashed(image.numpy() for image in batch.detach().cpu().contiguous().float())


def refuse_cache(cache: str | Path | None) -> None:
    """Refuse a cache for tensors: their fingerprint is known only after the last one."""
    if cache is not None:
        raise InputError("features of prepared tensors are not kept on disk: leave the cache out, or give images")


class _Subset:
    """The images with the smallest keys of a stream: a seeded subset of all, in bounded memory."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.heap: list[tuple[int, int, Tensor]] = []  # (-key, -row, image): the largest key is replaced first

    def add(self, batch: Tensor, identities: Keys, first: int) -> None:
        for place, key in enumerate(identity.keys(identities, 0, "subset").tolist() if self.count else ()):
            if len(self.heap) == self.count and -key <= self.heap[0][0]:
                continue
            push = heapq.heappush if len(self.heap) < self.count else heapq.heapreplace
            push(self.heap, (-key, -first - place, batch[place].detach().cpu().clone()))

    def result(self) -> tuple[Tensor, NDArray[np.int64]]:
        """Return the images of the first one's size and their rows, by ascending keys."""
        if not self.heap:
            return torch.empty(0), np.empty(0, np.int64)
        ordered = sorted(self.heap, key=lambda item: item[:2], reverse=True)
        same = [(row, image) for _, row, image in ordered if image.shape == ordered[0][2].shape]
        rows, images = zip(*same, strict=True)
        return torch.stack(images), -np.array(rows, np.int64)
