"""Run batches of tensors through a network in one pass: nothing is read twice, because a loader may shuffle."""

from __future__ import annotations

import heapq
import zlib
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.files import DAMAGE, compute_fingerprint, replacing
from oodshape.core.progress import progress_bar
from oodshape.features.chunks import check_finite
from oodshape.features.extraction import identify_network
from oodshape.images import identity
from oodshape.images.decode.preprocessing import check_shape
from oodshape.images.sources.memory import PREPARED_KEYS, count_prepared, iterate_prepared, split_sample
from oodshape.networks.classifier import Classifier

WRITTEN = 4096  # rows that the cache gets together: what a killed run loses at most
OPEN_FILES = 64  # of the cache, at the same time


@dataclass(frozen=True, eq=False)
class ExtractedTensors:
    """The features, predictions, labels and identities of a stream of tensors, and some of the images."""

    features: NDArray[Any]  # [N, M]
    predictions: NDArray[np.int64]  # [N]
    labels: NDArray[np.int64]  # [N], -1: none
    identities: identity.Keys  # [N], by content
    kept: Tensor  # [K, ...]: images, of the size of the first
    kept_rows: NDArray[np.int64]  # [K]: their rows, by ascending keys
    shape: tuple[int, ...] | None  # of every image; None: they differ

    def check_one_size(self) -> None:
        """Refuse images of several sizes, for a method that makes images of them."""
        if self.shape is None:
            raise InputError("prepared images must have one size for this method: choose another")


def extract_tensors(
    classifier: Classifier,
    images: Any,
    dtype: str = "float32",
    *,
    keep: int = 0,
    shape: tuple[int, ...] | None = None,
    cache: Path | None = None,
    name: str = "prepared images",
    progress: bool | None = None,
) -> ExtractedTensors:
    """Run batches of tensors, each image of this `shape`, through the network; keep some, selected by identity.

    With a `cache` folder, features are kept there by the content of each image, and a later pass runs only images that
    it does not have: a loader has no name, and may shuffle.
    """
    parts: list[tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64], identity.Keys]] = []
    subset, first, shapes = _Subset(keep), 0, set[tuple[int, ...]]()
    through = _Network(classifier, dtype, cache)
    _refuse_random(images)
    with progress_bar(name, count_prepared(images), progress) as report:
        for place, (batch, labels) in enumerate(iterate_prepared(images)):
            shapes.add(tuple(batch.shape[1:]))
            try:
                check_shape(batch.shape[1:], shape)
                which = hash_tensors(batch)
                if place == 0:
                    through.start(batch[:2], which[:2])
                values, classes = through(batch, which, first)
            except InputError as error:
                raise InputError(f"batch {place}: {error}") from None
            subset.add(batch, which, first)
            parts.append((values, classes, labels, which))
            first += len(batch)
            report(first)
    through.write()
    if not parts:
        raise InputError("there is no batch: the iterable is empty, or was used up before")
    features, predictions, labels, identities = (np.concatenate(each) for each in zip(*parts, strict=True))
    only = shapes.pop() if len(shapes) == 1 else None
    return ExtractedTensors(features, predictions, labels, identities, *subset.result(), only)


class _Network:
    """A network that gives features and predictions of tensors, from the cache where it has them.

    The cache has two files per write: features [n, M] as .npy, of which only the rows asked for are read, and an .npz
    with the identity, the predicted class and the checksum of each row.
    """

    def __init__(self, classifier: Classifier, dtype: str, cache: Path | None) -> None:
        self.classifier, self.dtype, self.cache = classifier, dtype, cache
        self.folder: Path | None = None
        self.kept: dict[int, tuple[Path, int, int, int]] = {}  # identity -> file, row, prediction, checksum
        self.new: list[tuple[NDArray[Any], NDArray[np.int64], identity.Keys]] = []
        self.map_file = lru_cache(OPEN_FILES)(partial(np.load, mmap_mode="r"))

    def start(self, pair: Tensor, which: identity.Keys) -> None:
        """Check the network on the first images, and read which rows the cache has."""
        if len(pair) > 1:
            self.classifier.check_repeatable(pair)
        if self.cache is None:
            return
        found = self._run(pair, 0)[0].astype(np.float32)  # the head is known from here on
        words = (identify_network(self.classifier), str(self.classifier.head_name), self.classifier.precision)
        self.folder = self.cache / f"tensors-{compute_fingerprint(*words, self.dtype)}"
        for path in sorted(self.folder.glob("*.npz")):
            with suppress(*DAMAGE), np.load(path) as index:  # a damaged file is as if it were not there
                rows = zip(*(index[name].tolist() for name in ("keys", "classes", "checksums")), strict=True)
                self.kept |= {key: (path.with_suffix(".npy"), row, *rest) for row, (key, *rest) in enumerate(rows)}
        for features, key in zip(found, which.tolist(), strict=True):
            known = self._look_up(key)
            if known is not None:
                apart = np.abs(features - known[0].astype(np.float32)).max()
                if not apart <= self.classifier.rounding * np.abs(features).max():
                    self.kept = {}  # the code of a forward pass has no fingerprint: it was changed
                    break

    def _look_up(self, key: int) -> tuple[NDArray[Any], int] | None:
        """(features, prediction) of an image; None where the cache has none, or damaged ones."""
        if key in self.kept:
            path, row, prediction, checksum = self.kept[key]
            with suppress(OSError, *DAMAGE):
                features = self.map_file(path)[row]
                if zlib.crc32(features) == checksum:
                    return features, prediction
        return None

    def __call__(self, batch: Tensor, which: identity.Keys, first: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """([n, M] features, [n] predictions) of a batch."""
        places = [self._look_up(key) for key in which.tolist()]
        known = [place for place in places if place is not None]
        missing = np.array([place is None for place in places])
        if not known:
            features, classes = self._run(batch, first)
        else:
            features, classes = np.empty((len(batch), len(known[0][0])), self.dtype), np.empty(len(batch), np.int64)
            features[~missing], classes[~missing] = (list(each) for each in zip(*known, strict=True))
            if missing.any():
                features[missing], classes[missing] = self._run(batch[torch.from_numpy(missing)], first)
        if self.folder is not None and missing.any():
            self.new.append((features[missing], classes[missing], which[missing]))
            if sum(len(keys) for *_, keys in self.new) >= WRITTEN:
                self.write()
        return features, classes

    def _run(self, batch: Tensor, first: int) -> tuple[NDArray[Any], NDArray[np.int64]]:
        outputs = self.classifier(batch)
        values = outputs.features.cpu()
        check_finite(values, first)
        return values.to(getattr(torch, self.dtype)).numpy(), outputs.logits.argmax(dim=1).cpu().numpy()

    def write(self) -> None:
        """Write the features that the cache lacks; the index, which makes them count, comes last."""
        if self.folder is None or not self.new:
            return
        features, classes, keys = (np.concatenate(each) for each in zip(*self.new, strict=True))
        self.new = []
        self.map_file.cache_clear()  # some systems replace no open file
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{compute_fingerprint(keys)}.npy"
        with replacing(path) as temporary, temporary.open("wb") as stream:
            np.save(stream, features)
        with replacing(path.with_suffix(".npz")) as temporary, temporary.open("wb") as stream:
            np.savez(stream, keys=keys, classes=classes, checksums=[zlib.crc32(row) for row in features])


READ_TWICE = 8  # images of a data set: a random flip leaves each as it is half of the time


def _refuse_random(images: Any) -> None:
    """Refuse a data set, also behind a DataLoader, that gives other tensors when it is asked a second time."""
    items = getattr(images, "dataset", images)
    if isinstance(items, (list, tuple, Tensor)) or not (hasattr(items, "__getitem__") and hasattr(items, "__len__")):
        return
    for row in range(min(READ_TWICE, len(items))):
        try:
            one, other = (split_sample(items[row], PREPARED_KEYS)[0] for _ in range(2))
        except Exception:  # the user's own code: an error that matters comes back when the images are read
            return
        if isinstance(one, Tensor) and hash_tensors(one[None])[0] != hash_tensors(other[None])[0]:
            raise InputError(
                f"image {row} of the data set is another tensor each time it is read: random augmentation is on; give "
                "a data set with the transform of the evaluation (resize, crop, normalise)"
            )


def hash_tensors(batch: Tensor) -> identity.Keys:
    """Return [N]: a hash of the values of each image."""
    return identity.hash_each(image.numpy() for image in batch.detach().cpu().contiguous().float())


class _Subset:
    """The images with the smallest keys of a stream: a seeded subset of all, in bounded memory."""

    def __init__(self, count: int) -> None:
        self.count = count
        self.heap: list[tuple[int, int, Tensor]] = []  # (-key, -row, image): the largest key is replaced first

    def add(self, batch: Tensor, identities: identity.Keys, first: int) -> None:
        for place, key in enumerate(identity.draw_keys(identities, 0, "subset").tolist() if self.count else ()):
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
