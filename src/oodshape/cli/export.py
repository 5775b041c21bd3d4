"""oodshape export: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path

from oodshape.cli import shared_options as shared
from oodshape.cli.terminal import say
from oodshape.core.files import check_writable
from oodshape.core.options import ModelOptions


def export(
    *,
    guard: shared.GuardOption,
    model: shared.ModelOption,
    opening: ModelOptions = shared.ON_ANY_DEVICE,
    out: Path,
    images: str | None = None,
) -> None:
    """Write network and guard as one ONNX file: images -> logits, score, accepted.

    The threshold is an input with a default. Before the file is written the graph runs in onnxruntime and is compared
    with torch; if they disagree, no file is written. Needs the extra: pip install 'oodshape\\[onnx]'.

    Args:
        out: The file to write, such as guarded.onnx.
        images: To compare on [default: synthetic ones]: {IMAGES}.
    """
    check_writable(out)
    shared.check_inputs(images, guard=guard, model=model, opening=opening)
    from oodshape.guard.guard import Guard

    fitted = Guard.load(guard, trust_code=opening.trust_code)
    report = fitted.export(out, model, images=images, **vars(shared.resolve_device(opening)))
    say(str(report))
