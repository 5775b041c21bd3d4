"""oodshape fit: parses, calls, prints."""

from __future__ import annotations

import json as encoder
from pathlib import Path
from typing import Annotated, Any

import typer

from oodshape.cli.completion import method_names
from oodshape.cli.options import (
    IMAGES,
    ColumnOption,
    Costs,
    Engine,
    ExportableOption,
    Keeping,
    LimitOption,
    Network,
    Preparing,
    QuietOption,
    Running,
    UprightOption,
)
from oodshape.cli.terminal import check_out, say, say_command, warnings_as_lines
from oodshape.core.errors import InputError


def fit(
    *,
    network: Network,
    images: Annotated[str | None, typer.Option(help=f"Images like those it was trained on: {IMAGES}.")] = None,
    parts: Annotated[
        list[str] | None,
        typer.Option(help="In place of images: the files of `oodshape collect`, as a quoted glob or one by one."),
    ] = None,
    out: Annotated[Path, typer.Option(help="The file to write, such as guard.safetensors.")],
    calibrate: Annotated[
        str | None, typer.Option(help="Images that the network was NOT trained on: they set the threshold.")
    ] = None,
    column: ColumnOption = None,
    method: Annotated[
        str,
        typer.Option(autocompletion=method_names, help="A method of `oodshape methods`; auto chooses and fuses some."),
    ] = "auto",
    alpha: Annotated[float, typer.Option(help="The share of good images that may be rejected.")] = 0.05,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="A threshold for each predicted class that has enough images.")
    ] = False,
    exportable: ExportableOption = False,
    classes: Annotated[
        Path | None, typer.Option(help="Class names, one a line \\[default: the class folders' names, if they fit].")
    ] = None,
    preparing: Preparing,
    upright: UprightOption = False,
    limit: LimitOption = None,
    keep_samples: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Keep thumbnails of N training images in the guard, for pages to show beside an image that is "
            "explained: whoever has the guard can see them.",
        ),
    ] = 0,
    keeping: Keeping,
    engine: Engine,
    running: Running,
    costs: Costs,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Make a guard: learn what a network's own images look like, and set the threshold.

    With --calibrate the threshold is a promise: on images like these, at most the share --alpha is rejected.
    """
    from oodshape.guard.describe import chosen_lines, facts, per_class_line, preprocessing_line
    from oodshape.guard.fit.fit import read_names
    from oodshape.guard.guard import Guard
    from oodshape.images.sources.listing import in_column
    from oodshape.networks.device import AUTO
    from oodshape.networks.loading import open_model, prepared

    costs.hold()
    check_out(out)
    took: list[Any] = []  # what an engine says of its work
    with warnings_as_lines():
        source = open_model(network.model, **network.said(), **running.place())
        said = preparing.said()
        how: dict[str, Any] = {
            "images": in_column(images, column),
            "calibrate": in_column(calibrate, column),
            "method": method,
            "alpha": alpha,
            "per_class": per_class,
            "preprocessing": None if parts and not said else prepared(source.native, **said),
            "names": () if classes is None else read_names(classes),
            "upright": upright,
            "exportable": exportable,
            "limit": limit,
            "progress": False if json or quiet else None,
            **running.feeding(),
        }
        if engine.is_ray:
            from oodshape.engines.ray import fit_guard

            if parts or images is None or keep_samples or keeping.cache is not None:
                raise InputError("the engine ray takes --images, not --parts, and keeps no samples and no features")
            opening = {**network.said(), **running.place()}
            guard = fit_guard(network.model, network=opening, pool=engine.pool(), watch=took.append, **how)
        else:
            guard = Guard.fit(source, parts=parts or None, cache=keeping.folder, keep_samples=keep_samples, **how)
    guard.save(out)
    if json:
        typer.echo(encoder.dumps(facts(guard)))
        return
    if quiet:
        return
    for line in [*(each.line() for each in took), *chosen_lines(guard)]:
        say(line)
    say(f"images: {preprocessing_line(guard.about.preprocessing)}")
    if guard.detector.groups is not None:
        say(per_class_line(guard))
    say(f"promise: {guard.promise}")
    if guard.sanity:
        say(f"sanity: {guard.sanity}")
    if calibrate is None:
        say("give --calibrate images that the network was not trained on, and it becomes a promise")
    say(f"guard: {out}")
    given = ["--detector", str(out), *network.words()]
    given += [] if running.device == AUTO else ["--device", running.device]
    say_command("next: ", ["oodshape", "score", *given, "--images", "FOLDER", "--out", "scores.csv"])
