"""oodshape fit: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from oodshape.cli.shared_options import (
    IMAGES,
    METHOD,
    ON_ANY_DEVICE,
    EngineOption,
    ExportableOption,
    JsonOption,
    ModelOption,
    PreprocessingOption,
    cache_folder,
    check_inputs,
    model_words,
    parse_preprocessing,
    ray_pool,
    resolve_device,
)
from oodshape.cli.terminal import say, say_command, show_progress, warnings_as_lines
from oodshape.core.errors import InputError
from oodshape.core.files import check_writable
from oodshape.core.options import CacheOptions, HeadOptions, ImageOptions, ModelOptions, RunOptions, SubsetOptions


def fit(
    *,
    model: ModelOption,
    opening: ModelOptions = ON_ANY_DEVICE,
    layer: HeadOptions,
    images: Annotated[str | None, typer.Option(help=f"Images like those it was trained on: {IMAGES}.")] = None,
    parts: Annotated[
        list[str] | None,
        typer.Option(help="In place of images: the files of `oodshape collect`, as a quoted glob or one by one."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write, such as guard.safetensors.")],
    calibrate: Annotated[
        str | None, typer.Option(help="The calibration set: images that the network was NOT trained on.")
    ] = None,
    method: Annotated[
        str,
        typer.Option(
            help="A method of `oodshape methods`, or package.module:Name; auto selects and fuses several.",
            rich_help_panel=METHOD,
        ),
    ] = "auto",
    alpha: Annotated[
        float, typer.Option(help="Bound on the expected false rejection rate.", rich_help_panel=METHOD)
    ] = 0.05,
    per_class: Annotated[
        bool,
        typer.Option("--per-class", help="Calibrate one threshold per predicted class.", rich_help_panel=METHOD),
    ] = False,
    exportable: ExportableOption = False,
    classes: Annotated[
        Path | None,
        typer.Option(
            help="Class names, one per line \\[default: the class folders' names, if they fit]. CLIP and SigLIP make "
            "their head of them."
        ),
    ] = None,
    prompt: Annotated[
        str, typer.Option(help="For CLIP and SigLIP: the sentence around a class name, which stands for {}.")
    ] = "a photo of a {}.",
    preprocessing: PreprocessingOption = "",
    reading: ImageOptions,
    subset: SubsetOptions,
    keeping: CacheOptions,
    engine: EngineOption = "local",
    running: RunOptions,
    json: JsonOption = False,
) -> None:
    """Fit a guard to a network: select a detector without OOD data, calibrate the threshold, report the guarantee.

    The guarantee needs --calibrate: the expected false rejection rate on images like these is at most --alpha.
    """
    check_writable(out)
    check_inputs(images, calibrate, model=model, opening=opening, method=method)
    from oodshape.core.files import read_names
    from oodshape.guard.describe import chosen_lines, facts, per_class_line, preprocessing_line
    from oodshape.guard.guard import Guard
    from oodshape.images.sources.listing import in_column, skipped_lines
    from oodshape.networks.device import AUTO
    from oodshape.networks.loading import open_model, prepared

    pool = ray_pool(engine)
    lines: list[str] = []  # what an engine reports
    with warnings_as_lines():
        where = resolve_device(opening)
        names = () if classes is None else read_names(classes)
        source = open_model(model, classes=names, prompt=prompt, **vars(where), **vars(layer))
        settings, upright = parse_preprocessing(preprocessing)
        options: dict[str, Any] = {
            "method": method,
            "alpha": alpha,
            "per_class": per_class,
            "preprocessing": None if parts and not settings else prepared(source.native, **settings),
            "classes": names,
            "upright": upright,
            "exportable": exportable,
            "limit": subset.limit,
        }
        run = replace(running, progress=show_progress(json))
        if pool is not None:
            from oodshape.engines.ray import fit_guard

            if parts or images is None or keeping.cache is not None:
                raise InputError("the engine ray takes --images, not --parts, and keeps no features")
            given, held = (in_column(each, reading.column) for each in (images, calibrate))
            guard, timings = fit_guard(source, given, held, run, pool=pool, **options)
            lines = [timings.line()]
        else:
            options |= {"images": images, "calibrate": calibrate, "parts": parts or None}
            guard = Guard.fit(source, cache=cache_folder(keeping.cache), **options, **vars(reading), **vars(run))
    guard.save(out)
    if json:
        typer.echo(encoder.dumps(facts(guard)))
        return
    for line in [*lines, *chosen_lines(guard)]:
        say(line)
    say(f"images: {preprocessing_line(guard.about.preprocessing)}")
    for line in [*skipped_lines(images), *skipped_lines(calibrate)]:
        say(line)
    if guard.detector.groups is not None:
        say(per_class_line(guard))
    say(f"guarantee: {guard.guarantee}")
    if guard.sanity:
        say(f"sanity: {guard.sanity}")
    if calibrate is None:
        say("for a guarantee, give --calibrate images that the network was not trained on")
    say(f"guard: {out}")
    words = ["--guard", str(out), *model_words(model, opening)]
    words += [] if opening.device == AUTO else ["--device", str(opening.device)]
    say_command("next: ", ["oodshape", "score", *words, "--images", "FOLDER", "--out", "scores.csv"])
