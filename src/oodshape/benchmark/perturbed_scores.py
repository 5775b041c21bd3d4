"""Scores of methods that perturb the images: a second pass through the network, kept on disk like the features."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.core.files import compute_fingerprint
from oodshape.core.options import RunOptions
from oodshape.core.progress import Report, progress_bar
from oodshape.core.values import encode
from oodshape.features.disk_cache import Table, lock_folder
from oodshape.features.extraction import CHUNK, PROBED, Extraction
from oodshape.features.tensor_batches import tensor_identities
from oodshape.images.decode.prefetch import decoded_rows
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.identity import Keys
from oodshape.images.sources.image_set import ImageSet, Subset, limited
from oodshape.images.sources.memory import prepared_batches
from oodshape.methods.detector import Detector, Method
from oodshape.networks.classifier import Classifier

Part = tuple[int, NDArray[np.float32]]  # a row, and the scores from that row on
SEEN = 5000  # training images that a step learns from: what the authors of AdaSCALE take
BATCH = 64  # images at once: gradients take several times the memory of a forward pass


def learned(
    method: Method,
    classifier: Classifier,
    images: ImageSet,
    preprocessing: Preprocessing,
    *,
    seed: int = 0,
    workers: int | None = None,
) -> Method:
    """The method, once its step in the image has seen at most 5,000 training images."""
    few = limited(images, SEEN, seed)
    with closing(decoded_rows(few, preprocessing, range(len(few)), BATCH, workers)) as decoding:
        batches = (preprocessing.normalize(pixels) for _, pixels, _ in decoding)
        return replace(method, perturb=method.perturb.learned(classifier, batches))


def perturbed_scores(
    detector: Detector,
    classifier: Classifier,
    images: ImageSet,
    preprocessing: Preprocessing,
    *,
    cache: Path | None = None,
    progress: bool | None = None,
    workers: int | None = None,
) -> Tensor:
    """[N] float32 scores of a detector that goes back to the images.

    With a cache they are written in chunks beside the features of the same images, under a name that changes
    with the fitted method; a later call reads them, one after a crash resumes at the last whole chunk. Scores of a
    network that gives other features for the first images now are made anew.
    """
    parts = partial(_parts, detector, classifier, images, preprocessing, workers)
    with progress_bar(f"{images.name} perturbed", len(images), progress) as report:
        if cache is None:
            scores = np.empty(len(images), np.float32)
            for first, part in parts(0):
                scores[first : first + len(part)] = part
                report(first + len(part))
            return torch.from_numpy(scores)
        extraction = Extraction(classifier, images, preprocessing)
        home = extraction.folder(cache) / f"scores-{_identity(detector)}"
        table = Table(home / "scores.npy", (len(images),), np.dtype("<f4"))
        probe = Table(home / "probe.npy", (min(PROBED, len(images)), classifier.head.width), np.dtype("<f4"))
        kept = table.load() if _still(extraction, probe) else None
        if kept is None:
            with lock_folder(home, partial(report, 0, f"{images.name}: another process is at it")):
                if not _still(extraction, probe):
                    table.path.unlink(missing_ok=True)
                    table.part.unlink(missing_ok=True)
                    _keep(extraction, probe)
                if table.load() is None:  # that process has not filled it
                    _fill(table, parts, report)
            kept = table.load()
        if kept is None:
            raise InputError(f"{home} was changed by someone else while it was filled; run it again")
        return torch.from_numpy(np.array(kept, np.float32))


def tensor_scores(detector: Detector, classifier: Classifier, batches: Any, identities: Keys) -> Tensor:
    """[N] float32 scores of tensors by a detector that goes back to the images, in the order of their identities.

    A loader is read once more, and may shuffle; one that gives other images now is refused.
    """
    found: dict[int, float] = {}
    for batch, _ in prepared_batches(batches):
        for first in range(0, len(batch), BATCH):
            part = batch[first : first + BATCH]
            found |= zip(tensor_identities(part).tolist(), detector.score(classifier, part).tolist(), strict=True)
    try:
        return torch.tensor([found[key] for key in identities.tolist()])
    except KeyError:
        raise InputError(
            "this method reads images twice, and the loader gives other images the second time: turn random "
            "augmentation off, and give a loader that can be iterated again"
        ) from None


def _still(extraction: Extraction, probe: Table) -> bool:
    """Whether the network gives the features that it gave for the first images when the scores were begun."""
    kept = probe.load()
    return kept is not None and extraction.still(kept, np.zeros(len(kept), np.int64))


def _keep(extraction: Extraction, probe: Table) -> None:
    """Write the features that the network gives for the first images."""
    few = Subset(extraction.images, range(probe.shape[0]))
    first = replace(extraction, images=few, run=RunOptions(workers=0, progress=False))
    probe.put(0, first.arrays(None)[0])
    probe.part.replace(probe.path)


def _fill(table: Table, parts: Callable[[int], Iterator[Part]], report: Report) -> None:
    """Write the scores that the table lacks, a chunk at a time, and give it its name."""
    first = table.rows() // CHUNK * CHUNK
    pending: list[NDArray[np.float32]] = []
    for at, part in parts(first):
        pending.append(part)
        done = at + len(part)
        report(done)
        if done - first == CHUNK or done == table.shape[0]:
            table.put(first, np.concatenate(pending))
            first, pending = done, []
    table.part.replace(table.path)


def _parts(
    detector: Detector,
    classifier: Classifier,
    images: ImageSet,
    preprocessing: Preprocessing,
    workers: int | None,
    first: int,
) -> Iterator[Part]:
    """The scores of consecutive batches, from row `first` on."""
    with closing(decoded_rows(images, preprocessing, range(first, len(images)), BATCH, workers)) as decoding:
        for rows, pixels, _ in decoding:
            yield rows.start, detector.score(classifier, preprocessing.normalize(pixels)).cpu().numpy()


def _identity(detector: Detector) -> str:
    """What decides a score beside the image and the network: the recipe and what was fitted."""
    tensors: dict[str, NDArray[Any]] = {}
    value = encode((detector.method, detector.shape, detector.head), tensors)
    return compute_fingerprint(json.dumps(value), *(tensors[name] for name in sorted(tensors)))
