"""A data set through a network, once: decoded ahead, kept on disk, resumed where it stopped."""

from __future__ import annotations

import re
from collections.abc import Generator
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.files import compute_fingerprint, replacing
from oodshape.core.options import RunOptions
from oodshape.core.progress import progress_bar
from oodshape.features.chunks import check_finite
from oodshape.features.disk_cache import CacheEntry, lock_folder, naming_cache
from oodshape.images.decode.prefetch import prefetch_rows, prepare_item
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import ImageSet, IndexedImages, Subset, choose_reader
from oodshape.networks.classifier import Classifier

FORMAT = 1  # raised when the same key would mean other numbers
PROBED = 2  # images that go through the network before kept features are used
CHUNK = 512  # rows that are written together, up to whole batches: what a killed run loses at most

DTypeName = Literal["float32", "float16"]
Batch = tuple[NDArray[Any], NDArray[np.int64]]  # features [n, M], predictions [n]


class NoReadableImage(InputError):
    """No image of a set can be read."""


@dataclass(frozen=True)
class Extraction:
    """Everything that determines the features, and how to compute them."""

    classifier: Classifier
    images: ImageSet
    preprocessing: Preprocessing
    dtype: DTypeName = "float32"
    run: RunOptions = RunOptions()
    skip: bool = False  # leave out images that cannot be read, instead of stopping at the first

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float16"):
            raise InputError(f"dtype must be 'float32' or 'float16', got {self.dtype!r}")
        if self.n == 0:
            raise InputError(f"{self.images.name} holds no images")

    @cached_property
    def n(self) -> int:
        return len(self.images)

    def arrays(self, cache: Path | None) -> Batch:
        """([N, M] features, [N] predictions).

        The features are memory-mapped from a folder of the cache, or in memory without one. With `skip`, the
        prediction of an image that cannot be read is -1.
        """
        features, predictions = self._in_memory() if cache is None else self._on_disk(cache)
        if predictions.max() < 0:
            self._first_image()  # says why
        return features, predictions

    def _in_memory(self) -> Batch:
        n, first = self.n, 0
        features, predictions = np.empty((n, 0)), np.empty(n, np.int64)
        with progress_bar(self.images.name, n, self.run.progress) as report, closing(self._batches(0)) as batches:
            for part, classes in batches:
                if features.shape[1] < part.shape[1]:  # the first images that can be read
                    features = np.zeros((n, part.shape[1]), self.dtype)
                rows = slice(first, first + len(part))
                features[rows], predictions[rows] = part, classes
                first += len(part)
                report(first)
        return features, predictions

    def _on_disk(self, cache: Path) -> Batch:
        folder = self.folder(cache)
        head = self.classifier.head
        entry = CacheEntry(folder, (self.n, head.width), head.classes, self.dtype, gaps=self.skip)
        kept = entry.load()
        return kept if kept is not None and self.still(*kept) else self._fill(entry, self._prints)

    def folder(self, cache: Path) -> Path:
        """The folder of the cache for these features, and for what else comes from these images and this network."""
        if cache.exists() and not cache.is_dir():
            raise InputError(f"cache must be a folder, but {cache} is a file")
        prints = self._prints
        self.find_head()
        by_content = {**prints, "images": self._content(cache)}
        named = (str(self.classifier.head_name), repr(self.preprocessing), self.dtype, self.classifier.precision)
        return cache / compute_fingerprint(str(FORMAT), *by_content.values(), *named)

    def _content(self, cache: Path) -> str:
        """The fingerprint of what the files hold: they are read once, and again when their stamps have changed."""
        if not isinstance(self.images, (IndexedImages, Subset)):
            return self._prints["images"]
        note = cache / f"{self._prints['images']}.images"
        with suppress(OSError, UnicodeDecodeError):
            if re.fullmatch("[0-9a-f]{16}", kept := note.read_text("ascii")):
                return kept
        found = self.images.content_fingerprint
        with naming_cache(cache):
            cache.mkdir(parents=True, exist_ok=True)
            with replacing(note) as temporary:
                temporary.write_text(found)
        return found

    @cached_property
    def _prints(self) -> dict[str, str]:
        """What identifies the network and the images."""
        return {"network": identify_network(self.classifier), "images": self.images.fingerprint}

    def _fill(self, entry: CacheEntry, prints: dict[str, str]) -> Batch:
        """The arrays of the entry, after the rows that it lacks have been through the network."""
        images, chunk = self.images, -(-CHUNK // self.run.batch_size) * self.run.batch_size
        with progress_bar(images.name, self.n, self.run.progress) as report:
            waiting = partial(report, 0, f"{images.name}: another process is at it")
            with lock_folder(entry.folder, waiting):
                kept = entry.load()  # that process has filled it, or died
                if kept is not None and self.still(*kept):
                    return kept
                first = entry.start(chunk)  # drops a whole folder that is not to be used
                if first > 0 and not self.still(*entry.begun(first)):
                    entry.discard()
                    first = entry.start(chunk)
                report(first, images.name)
                with closing(self._batches(first)) as batches:
                    pending: list[Batch] = []
                    for batch in batches:
                        pending.append(batch)
                        rows = sum(len(features) for features, _ in pending)
                        report(first + rows)
                        if rows == chunk or first + rows == self.n:
                            features, predictions = zip(*pending, strict=True)
                            entry.put(first, np.concatenate(features), np.concatenate(predictions))
                            first, pending = first + rows, []
                if images.fingerprint != prints["images"]:
                    entry.discard()
                    raise InputError(f"the images of {images.name} changed while they were read; run it again")
                entry.finish()
                kept = entry.load()
        if kept is None:
            raise InputError(f"{entry.folder} was changed by someone else while it was filled; run it again")
        return kept

    def still(self, features: NDArray[Any], predictions: NDArray[np.int64]) -> bool:
        """Whether the network gives the kept features of the first images today.

        Equal weights and modules do not make equal networks: the code of a forward pass has no fingerprint. The two
        images go one by one, as sizes may differ, and through the classifier, which holds the head to the logits.
        """
        for row in np.flatnonzero(predictions >= 0)[:PROBED].tolist():
            pixels = prepare_item(choose_reader(self.images), self.preprocessing, row)
            where = f"{self.images.name}, image {row}"
            if isinstance(pixels, InputError):
                if self.skip:
                    return False
                raise InputError(f"{where}: {pixels}")
            found, kept = (
                each.astype(np.float32) for each in (self._through(pixels[None], row, where)[0][0], features[row])
            )
            if not np.abs(found - kept).max() <= self.classifier.rounding * np.abs(found).max():
                return False
        return True

    def _batches(self, first: int) -> Generator[Batch, None, None]:
        """Features and predictions from row `first` on; to be closed, since threads decode ahead."""
        every = range(first, self.n)
        images = prefetch_rows(
            self.images, self.preprocessing, every, self.run.batch_size, self.run.workers, skip=self.skip
        )
        with closing(images):
            for rows, pixels, read in images:
                where = f"{self.images.name}, images {rows.start} to {rows.stop - 1}"
                if len(read) == len(rows):
                    yield self._through(pixels, rows.start, where)
                    continue
                predictions = np.full(len(rows), -1, np.int64)  # -1: could not be read
                if not read:
                    width = self.classifier.head.width if self.classifier.head_known else 0
                    yield np.zeros((len(rows), width), self.dtype), predictions
                    continue
                places, found = np.array(read) - rows.start, self._through(pixels, rows.start, where)
                kept = np.zeros((len(rows), found[0].shape[1]), self.dtype)
                kept[places], predictions[places] = found
                yield kept, predictions

    def _through(self, pixels: NDArray[np.uint8], first: int, where: str) -> Batch:
        """Features and predictions of one batch."""
        try:
            outputs = self.classifier(self.preprocessing.normalize(pixels))
        except InputError as error:
            raise InputError(f"{where}: {error}") from None
        features = outputs.features.cpu()
        kept = features.to(getattr(torch, self.dtype))
        if not bool(torch.isfinite(kept).all()):
            check_finite(features, first)
            raise InputError(f'{where}: features up to {features.abs().max():g} need dtype="float32"')
        return kept.numpy(), outputs.logits.argmax(dim=1).cpu().numpy()

    def check_repeatable(self) -> None:
        """Refuse a network that is random, or whose features depend on the batch: the first image, and it darker."""
        first = self._first_image()
        self.classifier.check_repeatable(torch.stack([first, first / 2]))

    def find_head(self) -> None:
        """Let the classifier know its head, by running one image."""
        if not self.classifier.head_known:
            self.classifier(self._first_image()[None])

    def _first_image(self) -> Tensor:
        """The first image, or the first that can be read."""
        for row in range(self.n):
            try:
                return self.preprocessing(self.images[row])
            except InputError as error:
                if not self.skip or row == self.n - 1:
                    none = f"none of the {self.n} images of {self.images.name} can be read: "
                    raise NoReadableImage(f"{none if self.skip else ''}{error}") from None
        raise AssertionError("there is at least one image")


def identify_network(classifier: Classifier) -> str:
    """A hash of the weights and of the modules' text: equal weights do not tell strides and activations."""
    modules = re.sub(r" at 0x[0-9a-fA-F]+", "", repr(classifier.net))
    return compute_fingerprint(classifier.fingerprint, modules)
