"""oodshape fit: parses, calls, prints."""

from __future__ import annotations

import json as encoder
import shlex
from pathlib import Path
from typing import Annotated

import typer

from oodshape.cli.options import (
    ASPECT,
    IMAGES,
    INFLATED,
    PIXELS,
    BatchOption,
    ClassesOption,
    ColumnOption,
    CropOption,
    DeviceOption,
    HeadOption,
    InterpolationOption,
    MaxAspectOption,
    MaxInflatedOption,
    MaxPixelsOption,
    MeanOption,
    ModelOption,
    PrecisionOption,
    QuietOption,
    ResizeOption,
    StdOption,
    WeightsOption,
    WorkersOption,
    check_out,
    chosen_device,
    flags,
    use_limits,
    warnings_as_lines,
)


def fit(
    model: ModelOption,
    images: Annotated[str, typer.Option(help=f"Images like those it was trained on: {IMAGES}.")],
    out: Annotated[Path, typer.Option(help="The file to write, such as guard.safetensors.")],
    weights: WeightsOption = None,
    calibrate: Annotated[
        str | None, typer.Option(help="Images that the network was NOT trained on: they set the threshold.")
    ] = None,
    column: ColumnOption = None,
    method: Annotated[str, typer.Option(help="A method of `oodshape methods`; auto chooses and fuses some.")] = "auto",
    alpha: Annotated[float, typer.Option(help="The share of good images that may be rejected.")] = 0.05,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="A threshold for each predicted class that has enough images.")
    ] = False,
    exportable: Annotated[
        bool, typer.Option("--exportable", help="Only methods that can go into an ONNX graph.")
    ] = False,
    classes: Annotated[
        Path | None, typer.Option(help="Class names, one a line \\[default: the class folders' names, if they fit].")
    ] = None,
    head: HeadOption = None,
    num_classes: ClassesOption = None,
    resize: ResizeOption = "",
    crop: CropOption = None,
    mean: MeanOption = "",
    std: StdOption = "",
    interpolation: InterpolationOption = None,
    upright: Annotated[
        bool,
        typer.Option("--upright", help="Turn images as EXIF says; torchvision's and timm's loaders do not."),
    ] = False,
    limit: Annotated[int | None, typer.Option(min=1, help="At most N images of each set, fixed seed.")] = None,
    cache: Annotated[
        Path | None, typer.Option(help="Where features are kept between runs \\[default: the user's cache folder].")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing between runs.")] = False,
    device: DeviceOption = "auto",
    precision: PrecisionOption = None,
    batch_size: BatchOption = 64,
    workers: WorkersOption = None,
    max_pixels: MaxPixelsOption = PIXELS,
    max_aspect: MaxAspectOption = ASPECT,
    max_inflated: MaxInflatedOption = INFLATED,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Make a guard: learn what a network's own images look like, and set the threshold.

    With --calibrate the threshold is a promise: on images like these, at most the share --alpha is rejected.
    """
    from oodshape.core.machine import default_cache
    from oodshape.guard.describe import chosen_lines, facts, per_class_line, preprocessing_line
    from oodshape.guard.fit import read_names
    from oodshape.guard.guard import Guard
    from oodshape.images.listing import in_column
    from oodshape.networks.device import AUTO
    from oodshape.networks.opening import open_model, prepared

    use_limits(max_pixels, max_aspect, max_inflated)
    check_out(out)
    with warnings_as_lines():
        network = open_model(
            model,
            weights=weights,
            head=head,
            num_classes=num_classes,
            device=chosen_device(device),
            precision=None if precision is None else precision.value,
        )
        guard = Guard.fit(
            network,
            images=in_column(images, column),
            calibrate=in_column(calibrate, column),
            method=method,
            alpha=alpha,
            per_class=per_class,
            preprocessing=prepared(network.native, **flags(resize, crop, mean, std, interpolation)),
            names=() if classes is None else read_names(classes),
            upright=upright,
            exportable=exportable,
            limit=limit,
            cache=None if no_cache else (cache or default_cache()),
            progress=False if json or quiet else None,
            batch_size=batch_size,
            workers=workers,
        )
    guard.save(out)
    if json:
        typer.echo(encoder.dumps(facts(guard)))
        return
    if quiet:
        return
    for line in chosen_lines(guard):
        typer.echo(line)
    typer.echo(f"images: {preprocessing_line(guard.about.preprocessing)}")
    if guard.detector.groups is not None:
        typer.echo(per_class_line(guard))
    typer.echo(f"promise: {guard.promise}")
    if calibrate is None:
        typer.echo("give --calibrate images that the network was not trained on, and it becomes a promise")
    typer.echo(f"guard: {out}")
    given = ["--detector", str(out), "--model", model]
    given += [] if weights is None else ["--weights", str(weights)]
    given += [] if num_classes is None else ["--num-classes", str(num_classes)]
    given += [] if device == AUTO else ["--device", device]
    typer.echo(f"next: oodshape score {shlex.join(given)} --images FOLDER --out scores.csv")
