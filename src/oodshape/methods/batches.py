"""Features on their way to scores: in batches that need little room, and no score that is no number."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from oodshape.core.errors import InputError
from oodshape.features.features import Features
from oodshape.methods.slots import Batch
from oodshape.networks.head import Outputs

PARTS = 2  # of a chunk: a score makes several copies of a batch; products of fewer rows would take longer


def batches(data: Features | Outputs, *, whole: bool = False, checked: bool = True) -> Iterator[Batch]:
    """The rows in batches; `whole` asks for a single one where it needs no room of its own."""
    if isinstance(data, Outputs):
        yield Batch(data.features, data.head, given_logits=data.logits, checked=checked)
        return
    known = data.predictions if data.predictions_known else None
    whole = whole and known is not None and not data.half
    buffer: Tensor | None = None  # one for all, as large as the first
    for first, raw in data.chunks(whole=whole, parts=PARTS):
        classes = None if known is None else known[first : first + len(raw)]
        if not whole:
            buffer = torch.empty(raw.shape, device=data.head.weight.device) if buffer is None else buffer[: len(raw)]
        yield Batch(raw, data.head, first, given_classes=classes, buffer=buffer)


def check_scores(scores: Tensor) -> None:
    """Refuse NaN and infinite scores, naming the row."""
    if not bool(torch.isfinite(scores).all()):
        row = int((~torch.isfinite(scores)).to(torch.uint8).argmax())
        raise InputError(f"the score of row {row} is {float(scores[row])}: its features are too large")
