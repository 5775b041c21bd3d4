"""Calibrate an exported file on other images, by the scores of the file itself; needs neither torch nor onnx."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from oodshape.core.errors import InputError
from oodshape.core.files import replacing
from oodshape.core.options import RunOptions
from oodshape.core.progress import progress_bar
from oodshape.core.text import format_count
from oodshape.guard.describe import EXIF, describe_limits
from oodshape.guard.export.edit_onnx import read_exported, replace_threshold
from oodshape.guard.export.guarded_file import GuardedFile, Pixels
from oodshape.guard.verdict import Verdict
from oodshape.images.decode.prefetch import prefetch
from oodshape.images.sources.open_images import Given, split_chunks, stream_images
from oodshape.metrics import conformal


@dataclass(frozen=True)
class Recalibrated:
    """The thresholds before and after, and what became of the images."""

    before: list[float]  # one, or one for each class
    after: list[float]
    guarantee: str
    images: int
    copies: int
    unreadable: tuple[str, ...]

    def lines(self) -> list[str]:
        """The result in words."""
        after, before = (describe_limits(np.array(each)) for each in (self.after, self.before))
        found = [f"threshold: {after}, before {before}", f"guarantee: {self.guarantee}"]
        if self.copies:
            found.append(f"{format_count(self.copies, 'image')} left out: copies of others")
        if self.unreadable:
            found.append(f"{len(self.unreadable):,} could not be read; {self.unreadable[0]}")
        return found


def recalibrate(
    guarded: GuardedFile, out: Path, images: Given | None, alpha: float | None, run: RunOptions = RunOptions()
) -> Recalibrated:
    """Write the file with the threshold of other images, of another alpha, or of both.

    Args:
        guarded: The exported file.
        out: The file to write; it may be the same.
        images: The calibration set, which the network must not have been trained on; None: the scores in the file.
        alpha: Upper bound on the expected fraction of ID images that are rejected by mistake; None: as before.
        run: Batch size, workers and progress.

    Raises:
        InputError: There is nothing to change, or too few images can be read.
    """
    metadata = guarded.metadata
    if images is None and alpha is None:
        raise InputError(
            "nothing would change: give images that the network was not trained on, another alpha, or both"
        )
    alpha = metadata.alpha if alpha is None else alpha
    scores, groups, copies, unreadable = metadata.calibration, metadata.groups, 0, list[str]()
    if images is not None:
        found, copies, unreadable = _score(guarded, images, run)
        found.sort(key=lambda verdict: verdict.score)
        scores = np.array([verdict.score for verdict in found], np.float32)
        classes = np.array([verdict.class_index for verdict in found], np.int32)
        groups = None if metadata.groups is None else classes
    conformal.check_enough(len(scores), alpha)
    limits = conformal.class_limits(scores, alpha, groups, guarded.classes)
    said = describe_threshold(limits.tolist(), alpha, scores, groups, images is not None or metadata.held_out)
    with replacing(out) as temporary:
        temporary.write_bytes(replace_threshold(read_exported(guarded.path), limits, said))
        guarantee = GuardedFile(temporary, threads=1).metadata.guarantee  # what cannot be read again is not written
    return Recalibrated(metadata.threshold.tolist(), limits.tolist(), guarantee, len(scores), copies, tuple(unreadable))


def describe_threshold(
    limits: list[float], alpha: float, scores: NDArray[Any], groups: NDArray[Any] | None, held_out: bool
) -> dict[str, str]:
    """The metadata on threshold and calibration set; arrays are base64 of little-endian numbers."""
    arrays = {"calibration": scores.astype("<f4")} | ({} if groups is None else {"groups": groups.astype("<i4")})
    said = {"alpha": str(alpha), "threshold": json.dumps(limits), "held_out": json.dumps(held_out)}
    return said | {name: base64.b64encode(array.tobytes()).decode() for name, array in arrays.items()}


def _score(guarded: GuardedFile, images: Given, run: RunOptions) -> tuple[list[Verdict], int, list[str]]:
    """Score each distinct image; how many copies were left out, and a line for each image without a score."""
    listing = stream_images(images)
    read = partial(listing.read, upright=guarded.exif == EXIF[True])
    batches = prefetch(read, guarded.preprocessing, split_chunks(listing.pairs(), run.batch_size), run.workers)
    found, seen, unreadable, copies = list[Verdict](), set[bytes](), list[str](), 0
    with progress_bar("calibration images", listing.count(), run.progress) as report:
        for pairs, pixels in batches:
            fresh: list[tuple[str, Pixels]] = []
            for (name, _), each in zip(pairs, pixels, strict=True):
                if isinstance(each, InputError):
                    unreadable.append(str(each))
                elif (digest := sha256(repr(each.shape).encode() + each.tobytes()).digest()) in seen:
                    copies += 1
                else:
                    seen.add(digest)
                    fresh.append((name, each))
            for (name, _), verdict in zip(fresh, guarded.verdicts([each for _, each in fresh]), strict=True):
                if isinstance(verdict, InputError) or verdict.error:
                    unreadable.append(f"{name} {verdict if isinstance(verdict, InputError) else verdict.error}")
                else:
                    found.append(verdict)
            report(len(found) + copies + len(unreadable))
    return found, copies, unreadable
