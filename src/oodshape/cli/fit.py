"""oodshape fit: parses, calls, prints."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated, Any

import typer

from oodshape.cli import shared_options as shared
from oodshape.cli.terminal import say, show_json, warnings_as_lines
from oodshape.core.errors import InputError
from oodshape.core.files import check_writable
from oodshape.core.options import CacheOptions, HeadOptions, ImageOptions, ModelOptions, RunOptions, SubsetOptions


def fit(
    *,
    model: shared.ModelOption,
    opening: ModelOptions = shared.ON_ANY_DEVICE,
    layer: HeadOptions,
    images: str | None = None,
    parts: Annotated[list[str] | None, typer.Option(metavar="FILES")] = None,
    out: Path,
    calibrate: str | None = None,
    method: str = "auto",
    alpha: float = 0.05,
    per_class: bool = False,
    classes: Path | None = None,
    prompt: str = "a photo of a {}.",
    preprocessing: shared.PreprocessingOption = "",
    reading: ImageOptions,
    subset: SubsetOptions,
    keeping: CacheOptions,
    engine: shared.EngineOption = "local",
    running: RunOptions,
    json: shared.JsonOption = False,
) -> None:
    """Fit a guard to a network: select a detector without OOD data, calibrate the threshold, report the guarantee.

    The guarantee needs --calibrate: the expected false rejection rate on images like these is at most --alpha.

    Args:
        images: Images like those it was trained on: {IMAGES}.
        parts: In place of --images: files of `oodshape collect`, or a quoted glob.
        out: The file to write, such as guard.safetensors.
        calibrate: The calibration set: images that the network was NOT trained on.
        method: A method of `oodshape methods`, or package.module:Name; auto selects and fuses several.
        alpha: Upper bound on the expected fraction of ID images that are rejected by mistake.
        per_class: Calibrate one threshold per predicted class.
        classes: Class names, one per line [default: the class folders' names, if they fit]. CLIP and SigLIP need them.
        prompt: For CLIP and SigLIP: the prompt; {} is replaced by the class name.
    """
    check_writable(out)
    shared.check_inputs(images, calibrate, model=model, opening=opening, method=method, alpha=alpha)
    settings, upright = shared.parse_preprocessing(preprocessing)
    pool = shared.ray_pool(engine)
    from oodshape.guard.describe import describe_classes, describe_preprocessing, describe_selection, facts
    from oodshape.guard.guard import Guard
    from oodshape.images.sources.open_images import describe_skipped, in_column
    from oodshape.networks.device import AUTO
    from oodshape.networks.loading import open_model, override
    from oodshape.networks.model_names import read_class_names

    lines: list[str] = []  # what an engine reports
    with warnings_as_lines():
        where = shared.resolve_device(opening)
        names = () if classes is None else read_class_names(classes)
        source = open_model(model, classes=names, prompt=prompt, **vars(where), **vars(layer))
        options: dict[str, Any] = {
            "method": method,
            "alpha": alpha,
            "per_class": per_class,
            "preprocessing": None if parts and not settings else override(source.native, **settings),
            "classes": names,
            "upright": upright,
            "limit": subset.limit,
        }
        if pool is not None:
            from oodshape.engines.ray import fit_guard

            if parts or images is None or keeping.cache is not None:
                raise InputError("the engine ray takes --images, not --parts, and keeps no features")
            given, held = (in_column(each, reading.column) for each in (images, calibrate))
            guard, speed = fit_guard(source, given, held, running, pool=pool, **options)
            lines = [speed]
        else:
            options |= {"images": images, "calibrate": calibrate, "parts": parts or None}
            guard = Guard.fit(
                source, cache=shared.cache_folder(keeping.cache), **options, **vars(reading), **vars(running)
            )
    guard.save(out)
    if json:
        show_json(facts(guard))
        return
    say(*lines, *describe_selection(guard))
    say(f"preprocessing: {describe_preprocessing(guard.about.preprocessing)}")
    say(*describe_skipped(images), *describe_skipped(calibrate))
    if guard.detector.groups is not None:
        say(describe_classes(guard))
    say(f"guarantee: {guard.guarantee}")
    if guard.sanity:
        say(f"sanity: {guard.sanity}")
    if calibrate is None:
        say("for a guarantee, give --calibrate images that the network was not trained on")
    say(f"guard: {out}")
    words = ["--guard", str(out), "--model", model]
    words += [] if opening.weights is None else ["--weights", str(opening.weights)]
    words += ["--trust-code"] if opening.trust_code else []
    words += [] if opening.device == AUTO else ["--device", str(opening.device)]
    words += ["--images", "FOLDER", "--out", "scores.csv"]
    say("next: " + shlex.join(["oodshape", "score", *words]))
