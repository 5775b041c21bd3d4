"""Image files through a network and its guard: in the order given, decoded ahead, in constant memory."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from oodshape.core.errors import HeadError, InputError
from oodshape.core.progress import progress_bar
from oodshape.guard.fitted import Fitted
from oodshape.images.decode import read_image
from oodshape.images.listing import Given, Listing, chunks
from oodshape.images.preprocessing import stacked
from oodshape.methods.detector import Decision
from oodshape.networks.opening import Source

Pixels = NDArray[np.uint8]
Pairs = list[tuple[str, int]]
S = TypeVar("S")
T = TypeVar("T")


class Scored(NamedTuple):
    """One image: what the network calls it, how much that is to be trusted, or why it could not be read.

    An image that could not be read was not judged: `accepted` is None, which counts as no in `if row.accepted`, as it
    must where only trusted images go on. To count or to show rejections ask for `rejected`: a broken file is none.
    """

    path: str
    label: str | int | None = None  # the class: its name where names are known
    score: float | None = None  # higher: more like the training images
    p_value: float | None = None  # the share of held-out ID images with a score as low
    accepted: bool | None = None  # None: could not be read
    error: str = ""

    @property
    def rejected(self) -> bool:
        """Whether the image was read and is not to be trusted."""
        return self.accepted is False


@dataclass(frozen=True)
class Seen:
    """One batch: what was listed, the rows that could be read, what was decided on them, and the other rows' errors."""

    pairs: Pairs
    rows: list[int]
    decision: Decision
    baseline: Decision | None
    errors: dict[int, str]


def score_images(
    guard: Fitted, source: Source, images: Given | Listing, *, batch_size: int = 32, progress: bool | None = None
) -> Iterator[Scored]:
    """The rows of a listing, one by one."""
    listing, done = Listing.of(images), 0
    with progress_bar(listing.name, listing.count() if progress is not False else None, progress) as report:
        for batch in see(guard, source, listing, iter(listing), batch_size):
            yield from rows_of(guard, batch)
            done += len(batch.pairs)
            report(done)


def rows_of(guard: Fitted, seen: Seen) -> list[Scored]:
    """The rows of one batch, in its order."""
    rows = [Scored(path, error=seen.errors.get(place, "")) for place, (path, _) in enumerate(seen.pairs)]
    classes, scores, p_values, accepted = (values.tolist() for values in seen.decision)
    for at, place in enumerate(seen.rows):
        label = guard.label(classes[at])
        rows[place] = Scored(seen.pairs[place][0], label, scores[at], p_values[at], accepted[at])
    return rows


def see(
    guard: Fitted,
    source: Source,
    listing: Listing,
    pairs: Iterator[tuple[str, int]],
    batch_size: int,
    *,
    baseline: bool = False,
) -> Iterator[Seen]:
    """Every batch of the listed images, decoded by threads while the network works on the batches before."""
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")

    def decode(part: Pairs) -> tuple[Pairs, list[Pixels | str]]:
        return part, [read_pixels(guard, listing.file(path)) for path, _ in part]

    for part, pixels in _ahead(decode, chunks(pairs, batch_size)):
        yield _seen(guard, source, part, pixels, baseline)


def _seen(guard: Fitted, source: Source, pairs: Pairs, pixels: list[Pixels | str], baseline: bool) -> Seen:
    errors = {row: each for row, each in enumerate(pixels) if isinstance(each, str)}
    sizes: dict[tuple[int, ...], list[int]] = {}
    for row, each in enumerate(pixels):
        if not isinstance(each, str):
            sizes.setdefault(each.shape, []).append(row)  # a preprocessing may leave several sizes
    parts: list[Part] = []
    for rows in sizes.values():
        parts += _decided(guard, source, rows, pixels, baseline, errors)
    rows = [row for part in parts for row in part.rows]
    others = [part.baseline for part in parts if part.baseline is not None]
    return Seen(pairs, rows, _joined([part.decision for part in parts]), _joined(others) if baseline else None, errors)


class Part(NamedTuple):
    """Rows of a batch that went through the network together."""

    rows: list[int]
    decision: Decision
    baseline: Decision | None


def _decided(
    guard: Fitted, source: Source, rows: list[int], pixels: list[Any], baseline: bool, errors: dict[int, str]
) -> list[Part]:
    """The decisions on some rows; where the network refuses them together, on each alone."""
    try:
        images = guard.about.preprocessing.normalize(stacked([pixels[row] for row in rows]))
        outputs = source.classifier(images)
        if guard.detector.method.perturb.eps > 0:
            decision = guard.detector.decide(source.classifier, images)
        else:
            decision = guard.detector.decide(outputs)
        other = guard.about.baseline.decide(outputs) if baseline and guard.about.baseline is not None else None
        return [Part(rows, decision, other)]
    except HeadError:
        raise  # no fault of the image: none can be scored
    except InputError as error:  # such as logits that are not finite
        reason = str(error)
    except RuntimeError as error:
        if guard.about.preprocessing.size is not None:
            raise  # no fault of the image: all have one size
        reason = f"the network does not take its size: {error}"
    if len(rows) == 1:
        errors[rows[0]] = _line(reason)
        return []
    return [part for row in rows for part in _decided(guard, source, [row], pixels, baseline, errors)]


def read_pixels(guard: Fitted, file: str) -> Pixels | str:
    """The prepared image, or why there is none."""
    try:
        return guard.about.preprocessing.pixels(read_image(file, upright=guard.about.upright))
    except InputError as error:
        return _line(str(error).removeprefix(f"{file} ").removesuffix("; remove or replace the file"))


def _line(text: str) -> str:
    return " ".join(text.split())


def _joined(decisions: list[Decision]) -> Decision:
    if not decisions:
        none = torch.empty(0)
        return Decision(none.long(), none, none.double(), none.bool())
    return Decision(*(torch.cat(parts) for parts in zip(*decisions, strict=True)))


def _ahead(work: Callable[[S], T], items: Iterable[S]) -> Iterator[T]:
    """work(item) in the order of the items, done by threads, a few items ahead of who reads them."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    pool = ThreadPoolExecutor(min(4, cores))
    waiting: deque[Future[T]] = deque()
    try:
        for item in items:
            waiting.append(pool.submit(work, item))
            if len(waiting) > min(4, cores):
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        pool.shutdown(cancel_futures=True)
