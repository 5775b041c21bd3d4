"""Batches of tensors through a network, once, in one pass: nothing is read twice, since a loader may shuffle."""

from __future__ import annotations

from collections.abc import Sized
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
from oodshape.images.identity import Keys
from oodshape.images.sources.memory import prepared_batches
from oodshape.networks.classifier import Classifier


@dataclass(frozen=True, eq=False)
class SeenTensors:
    """What a network said about them, what they were, and some of them."""

    features: NDArray[Any]  # [N, M]
    predictions: NDArray[np.int64]  # [N]
    labels: NDArray[np.int64]  # [N], -1: none
    identities: Keys  # [N], by content
    kept: Tensor  # [K, ...]: images themselves, of the size of the first
    kept_rows: NDArray[np.int64]  # [K]: which they are, ascending in their keys
    mixed: bool  # whether images of other sizes had to be left out

    def check_one_size(self) -> None:
        """Refuse images of several sizes, for a method that makes images of them."""
        if self.mixed:
            raise InputError("prepared images must have one size for a method that makes images of them: use another")


def tensors_through(
    classifier: Classifier, images: Any, dtype: str = "float32", *, keep: int = 0, progress: bool | None = None
) -> SeenTensors:
    """Batches of tensors (`images.in_memory`) through the network; `keep` images, chosen by identity, stay."""
    parts: list[tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64], Keys]] = []
    chosen, first = _Chosen(keep), 0
    total = len(images) if isinstance(images, Sized) else None
    with progress_bar("prepared batches", total, progress) as report:
        for place, (batch, labels) in enumerate(prepared_batches(images)):
            try:
                outputs = classifier(batch)
            except InputError as error:
                raise InputError(f"batch {place}: {error}") from None
            values = outputs.features.cpu()
            check_finite(values, first)
            which = tensor_identities(batch)
            chosen.add(batch, which, first)
            classes = outputs.logits.argmax(dim=1).cpu().numpy()
            parts.append((values.to(getattr(torch, dtype)).numpy(), classes, labels, which))
            first += len(batch)
            report(place + 1)
    if not parts:
        raise InputError("there is no batch: the iterable is empty, or was used up before")
    features, predictions, labels, identities = (np.concatenate(each) for each in zip(*parts, strict=True))
    return SeenTensors(features, predictions, labels, identities, *chosen.found())


def tensor_identities(batch: Tensor) -> Keys:
    """[N]: a hash of each image's values."""
    return identity.hashed(image.numpy() for image in batch.detach().cpu().contiguous().float())


def check_unkept(cache: str | Path | None) -> None:
    """Refuse a cache for tensors: what they are is known only when all of them were seen."""
    if cache is not None:
        raise InputError("features of prepared tensors are not kept on disk: leave the cache out, or give images")


class _Chosen:
    """The images with the smallest keys of a stream: a seeded subset of all, in bounded memory."""

    def __init__(self, count: int) -> None:
        self.count, self.highest = count, 0
        self.images, self.keys, self.rows = list[Tensor](), list[int](), list[int]()

    def add(self, batch: Tensor, which: Keys, first: int) -> None:
        """Look at one more batch."""
        if self.count == 0:
            return
        for place, key in enumerate(identity.keys(which, 0, "subset").tolist()):
            if len(self.keys) == self.count:
                if key >= self.highest:
                    continue
                out = self.keys.index(self.highest)
                del self.images[out], self.keys[out], self.rows[out]
            self.images.append(batch[place].detach().cpu().clone())
            self.keys.append(key)
            self.rows.append(first + place)
            self.highest = max(self.keys)

    def found(self) -> tuple[Tensor, NDArray[np.int64], bool]:
        """The images and their rows, by ascending keys, and whether some of other sizes were left out."""
        if not self.images:
            return torch.empty(0), np.empty(0, np.int64), False
        order = np.argsort(np.array(self.keys, np.uint64), kind="stable")
        same = [place for place in order if self.images[place].shape == self.images[order[0]].shape]
        images = torch.stack([self.images[place] for place in same])
        return images, np.array(self.rows, np.int64)[same], len(same) < len(order)
