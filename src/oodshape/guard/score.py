"""Image files through a network and its guard: in the order given, decoded ahead, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch

from oodshape.core.errors import HeadError, InputError
from oodshape.core.progress import progress_bar
from oodshape.guard.fitted import Fitted
from oodshape.images.decode import Unreadable
from oodshape.images.listing import Given, Listing, chunks
from oodshape.images.prefetch import Pixels, decoded
from oodshape.images.preprocessing import stacked
from oodshape.methods.detector import Decision
from oodshape.networks.opening import Source

Pairs = list[tuple[str, int]]


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
    guard: Fitted,
    source: Source,
    images: Given | Listing,
    *,
    batch_size: int = 32,
    workers: int | None = None,
    progress: bool | None = None,
) -> Iterator[Scored]:
    """The rows of a listing, one by one."""
    listing, done = Listing.of(images), 0
    with progress_bar(listing.name, listing.count() if progress is not False else None, progress) as report:
        for batch in see(guard, source, listing, iter(listing), batch_size, workers=workers):
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
    workers: int | None = None,
    baseline: bool = False,
) -> Iterator[Seen]:
    """Every batch of the listed images, decoded by threads while the network works on the batches before."""
    if batch_size < 1:
        raise InputError(f"batch_size must be at least 1, got {batch_size}")

    read = partial(listing.read, upright=guard.about.upright)
    with closing(decoded(read, guard.about.preprocessing, chunks(pairs, batch_size), workers)) as decoding:
        for part, pixels in decoding:
            yield _seen(guard, source, list(part), pixels, baseline)


def _seen(guard: Fitted, source: Source, pairs: Pairs, pixels: list[Pixels | InputError], baseline: bool) -> Seen:
    errors = {row: _why(each) for row, each in enumerate(pixels) if isinstance(each, InputError)}
    sizes: dict[tuple[int, ...], list[int]] = {}
    for row, each in enumerate(pixels):
        if not isinstance(each, InputError):
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


def _why(error: InputError) -> str:
    """Why an image could not be read; its row names the file already."""
    return _line(error.reason if isinstance(error, Unreadable) else str(error))


def _line(text: str) -> str:
    return " ".join(text.split())


def _joined(decisions: list[Decision]) -> Decision:
    if not decisions:
        none = torch.empty(0)
        return Decision(none.long(), none, none.double(), none.bool())
    return Decision(*(torch.cat(parts) for parts in zip(*decisions, strict=True)))
