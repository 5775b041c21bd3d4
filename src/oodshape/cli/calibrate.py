"""oodshape calibrate: parses, calls, prints."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli import shared_options as shared
from oodshape.cli.terminal import say, show_json, warnings_as_lines
from oodshape.core.errors import InputError
from oodshape.core.files import check_writable
from oodshape.core.options import CacheOptions, ImageOptions, ModelOptions, RunOptions

UNKNOWN = "the guarantee holds only if neither the training of the network nor `fit` used these images (not checked)"


def calibrate(
    *,
    guard: Annotated[Path, typer.Argument(metavar="GUARD")],
    images: str | None = None,
    alpha: float | None = None,
    per_class: Annotated[bool | None, typer.Option("--per-class/--one-threshold")] = None,
    model: str | None = None,
    opening: ModelOptions = shared.ON_ANY_DEVICE,
    provider: shared.ProviderOption = "CPU",
    out: Path | None = None,
    reading: ImageOptions,
    keeping: CacheOptions,
    running: RunOptions,
    json: shared.JsonOption = False,
) -> None:
    """Calibrate a new threshold without fitting again: from new images, for another alpha, or both.

    Without --images the previous calibration scores are used, and no network is needed. An exported file (.onnx) is
    calibrated by its own scores, on --provider, without torch and without a model. Exported files and watch states
    keep their old threshold: calibrate or export the file again, and start a new state.

    Args:
        guard: The guard: a file that fit or export wrote.
        images: The calibration set: images that the network was NOT trained on: {IMAGES}.
        alpha: Upper bound on the expected fraction of ID images that are rejected by mistake [default: as before].
        per_class: One threshold per predicted class, or one for all; as before.
        model: The guard's network, as given to fit; not needed for zoo:NAME.
        out: The file to write [default: the same file].
    """
    out = guard if out is None else out
    check_writable(out)
    if guard.suffix == ".onnx":
        if model is not None or per_class is not None:
            raise InputError(
                "an exported file holds its network, and its kind of threshold is fixed: leave --model, "
                "--per-class and --one-threshold out"
            )
        from oodshape.guard.export.guarded_file import GuardedFile
        from oodshape.guard.export.recalibrate import recalibrate
        from oodshape.images.sources.open_images import in_column

        shared.check_inputs(images, alpha=alpha)
        given = in_column(images, reading.column)
        made = recalibrate(GuardedFile(guard, provider=provider), out, given, alpha, running)
        if json:
            show_json(vars(made) | {"out": str(out)})
            return
        say(*made.lines(), *([] if images is None else [UNKNOWN]), f"guard: {out}")
        return
    shared.check_inputs(images, guard=guard, model=model, opening=opening, alpha=alpha)
    from oodshape.guard.describe import GuardContents, describe_classes, facts
    from oodshape.guard.guard import Guard

    before = Guard.load(guard, trust_code=opening.trust_code)
    with warnings_as_lines():
        where = opening if images is None else shared.resolve_device(opening)
        given = vars(reading) | vars(running) | vars(where) | {"cache": shared.cache_folder(keeping.cache)}
        after = before.calibrate(images, model, alpha=alpha, per_class=per_class, **given)
    after.save(out)
    if json:
        show_json(facts(after))
        return
    was, now = (GuardContents.of(each).threshold_text for each in (before, after))
    say(f"threshold: {now}, before {was}")
    if after.detector.groups is not None:
        say(describe_classes(after))
    say(f"guarantee: {after.guarantee}")
    if images is not None:
        say(UNKNOWN)
    say(f"guard: {out}")
