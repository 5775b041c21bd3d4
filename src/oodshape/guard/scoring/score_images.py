"""Images through a network and its guard: in the order given, decoded ahead, in constant memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from oodshape.core.errors import HeadError, InputError, NotTaken
from oodshape.core.options import RunOptions
from oodshape.core.progress import progress_bar
from oodshape.guard.fitted import Fitted
from oodshape.guard.verdict import Scored
from oodshape.images.decode.prefetch import Pixels, prefetch
from oodshape.images.decode.preprocessing import check_shape, group_rows_by_size, stack_images
from oodshape.images.sources.memory import count_prepared, iterate_prepared
from oodshape.images.sources.open_images import Given, ImageSource, split_chunks, stream_images
from oodshape.methods.detector import Decision
from oodshape.networks.head import Outputs
from oodshape.networks.loading import OpenNet

Pairs = list[tuple[str, int]]


@dataclass(frozen=True)
class ScoredBatch:
    """A scored batch: the listed images, the readable rows with their decisions, and the errors of the other rows."""

    pairs: Pairs
    rows: list[int]
    decision: Decision
    errors: dict[int, str]
    outputs: Outputs | None  # features and logits of the rows that could be read; None where there are none


def score_images(
    guard: Fitted, source: OpenNet, images: Given, run: RunOptions, *, prepared: bool = False
) -> Iterator[Scored]:
    """The rows of images of any kind, one by one."""
    for batch in score_given(guard, source, images, run, prepared=prepared):
        yield from make_rows(guard, batch)


def score_given(
    guard: Fitted, source: OpenNet, images: Given, run: RunOptions, *, prepared: bool = False, name: str = ""
) -> Iterator[ScoredBatch]:
    """Score images of any kind in batches, with a progress bar."""
    if prepared:
        batches, total, title = _score_tensors(guard, source, images), count_prepared(images), "prepared images"
    else:
        listing = stream_images(images)
        batches, title = score_listed(guard, source, listing, listing.pairs(), run), listing.name
        total = listing.count() if run.progress is not False else None
    done = 0
    with progress_bar(name or title, total, run.progress) as report:
        for batch in batches:
            yield batch
            done += len(batch.pairs)
            report(done)


def make_rows(guard: Fitted, seen: ScoredBatch) -> list[Scored]:
    """The rows of one batch, in its order."""
    rows = [Scored(path, error=seen.errors.get(place, "")) for place, (path, _) in enumerate(seen.pairs)]
    classes, scores, p_values, accepted = (values.tolist() for values in seen.decision)
    for at, place in enumerate(seen.rows):
        label = guard.label(classes[at])
        rows[place] = Scored(seen.pairs[place][0], label, scores[at], p_values[at], accepted[at])
    return rows


def score_listed(
    guard: Fitted,
    source: OpenNet,
    listing: ImageSource,
    pairs: Iterator[tuple[str, int]],
    run: RunOptions = RunOptions(),
) -> Iterator[ScoredBatch]:
    """Score listed images in batches; threads decode ahead of the network."""
    read = partial(listing.read, upright=guard.about.upright)
    with closing(prefetch(read, guard.preprocessing, split_chunks(pairs, run.batch_size), run.workers)) as decoding:
        for part, pixels in decoding:
            yield _seen(guard, source, list(part), pixels)


def _score_tensors(guard: Fitted, source: OpenNet, images: Any) -> Iterator[ScoredBatch]:
    """Score batches of prepared tensors."""
    first = 0
    for batch, _ in iterate_prepared(images):
        check_shape(batch.shape[1:], guard.about.input_shape)
        pairs, errors = [(f"image {first + row}", first + row) for row in range(len(batch))], dict[int, str]()
        parts = _decide(guard, source, batch.__getitem__, errors, list(range(len(batch))), one_size=True)
        yield _join_parts(pairs, parts, errors)
        first += len(batch)


def _seen(guard: Fitted, source: OpenNet, pairs: Pairs, pixels: list[Pixels | InputError]) -> ScoredBatch:
    def normalized(rows: list[int]) -> Tensor:
        return guard.preprocessing.normalize(stack_images([pixels[row] for row in rows]))  # type: ignore[misc]

    failed = {row: each for row, each in enumerate(pixels) if isinstance(each, InputError)}
    # a reason alone: the row names the file already
    errors = {row: _line(getattr(each, "reason", str(each))) for row, each in failed.items()}
    decide = partial(_decide, guard, source, normalized, errors, one_size=guard.preprocessing.size is not None)
    return _join_parts(pairs, [part for rows in group_rows_by_size(pixels) for part in decide(rows)], errors)


BatchPart = tuple[list[int], Decision, Outputs]  # rows of a batch that went through the network together


def _join_parts(pairs: Pairs, parts: list[BatchPart], errors: dict[int, str]) -> ScoredBatch:
    decision = join_decisions([each for _, each, _ in parts])
    if not parts:
        return ScoredBatch(pairs, [], decision, errors, None)
    features, logits = (torch.cat([getattr(each, name) for *_, each in parts]) for name in ("features", "logits"))
    rows = [row for some, *_ in parts for row in some]
    return ScoredBatch(pairs, rows, decision, errors, Outputs(features, logits, parts[0][2].head))


def _decide(
    guard: Fitted,
    source: OpenNet,
    images: Callable[[list[int]], Tensor],
    errors: dict[int, str],
    rows: list[int],
    *,
    one_size: bool,
) -> list[BatchPart]:
    """The decisions on some rows; where the network refuses them together, on each alone.

    `images` gives some rows as the network takes them, `one_size` says whether all images have the same.
    """
    detector = guard.detector
    try:
        batch = images(rows)
        check_shape(batch.shape[1:], guard.about.input_shape)
        outputs = source.classifier(batch)
        decision = detector.decide(source.classifier, batch) if detector.method.perturbs else detector.decide(outputs)
        return [(rows, decision, outputs)]
    except HeadError:
        raise  # no fault of the image: none can be scored
    except NotTaken as error:
        if one_size:
            raise  # no fault of the image: all have one size
        reason = f"the network does not take its size: {error.__cause__}"
    except InputError as error:  # another size, or such as logits that are not finite
        reason = str(error)
    if len(rows) == 1:
        errors[rows[0]] = _line(reason)
        return []
    return [part for row in rows for part in _decide(guard, source, images, errors, [row], one_size=one_size)]


def _line(text: str) -> str:
    return " ".join(text.split())


def join_decisions(decisions: list[Decision]) -> Decision:
    """The decisions on several batches as one."""
    if not decisions:
        none = torch.empty(0, dtype=torch.float32)
        return Decision(none.long(), none, none.double(), none.bool())
    return Decision(*(torch.cat(parts) for parts in zip(*decisions, strict=True)))
