"""The commands around a guard: fit, score, inspect, check. Parses, calls, prints."""

from __future__ import annotations

import json as encoder
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodshape.errors import InputError

if TYPE_CHECKING:
    from oodshape.guard import Guard
    from oodshape.sources import Source

UNREADABLE = 3  # the exit status where some images could not be read


class Interpolation(Enum):
    """How images are resized."""

    bilinear = "bilinear"
    bicubic = "bicubic"
    nearest = "nearest"


IMAGES = "a folder, a text or CSV list, a quoted glob, an image, or - for paths on standard input"
ModelOption = Annotated[
    str,
    typer.Option(
        help="timm:NAME, torchvision:NAME, zoo:NAME, package.module:function, or a torch.export archive (.pt2)."
    ),
]
WeightsOption = Annotated[
    Path | None, typer.Option(help="The network's weights: .safetensors, or a torch file that holds tensors only.")
]
DetectorOption = Annotated[Path, typer.Option(help="The file that fit wrote.")]
ClassesOption = Annotated[int | None, typer.Option("--num-classes", min=1, help="Where the weights do not tell it.")]
ResizeOption = Annotated[int | None, typer.Option(min=1, help="The shorter side, instead of the model's own.")]
CropOption = Annotated[int | None, typer.Option(min=1, help="The side of the centre crop.")]
MeanOption = Annotated[str, typer.Option(help="One number per channel, fractions of 255: 0.485,0.456,0.406.")]
StdOption = Annotated[str, typer.Option(help="One number per channel, fractions of 255.")]
InterpolationOption = Annotated[Interpolation | None, typer.Option(help="How images are resized.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
BatchOption = Annotated[int, typer.Option(min=1, help="Images that go through the network together.")]


def fit(
    model: ModelOption,
    images: Annotated[str, typer.Option(help=f"Images like those it was trained on: {IMAGES}.")],
    out: Annotated[Path, typer.Option(help="The file to write, such as guard.safetensors.")],
    weights: WeightsOption = None,
    calibrate: Annotated[
        str | None, typer.Option(help="Images that the network was NOT trained on: they set the threshold.")
    ] = None,
    method: Annotated[str, typer.Option(help="A method of `oodshape methods`; auto chooses and fuses some.")] = "auto",
    alpha: Annotated[float, typer.Option(help="The share of good images that may be rejected.")] = 0.05,
    per_class: Annotated[
        bool, typer.Option("--per-class", help="A threshold for each predicted class that has enough images.")
    ] = False,
    classes: Annotated[
        Path | None, typer.Option(help="Class names, one a line [default: the class folders' names, if they fit].")
    ] = None,
    num_classes: ClassesOption = None,
    resize: ResizeOption = None,
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
        Path | None, typer.Option(help="Where features are kept between runs [default: the user's cache folder].")
    ] = None,
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing between runs.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print what was made as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Make a guard: learn what a network's own images look like, and set the threshold.

    With --calibrate the threshold is a promise: on images like these, at most the share --alpha is rejected.
    """
    from oodshape.fitting import fit_guard, read_names
    from oodshape.inspecting import chosen_lines, facts, per_class_line, preprocessing_line
    from oodshape.run import default_cache
    from oodshape.sources import open_model, prepared

    _check_folder(out)
    with _warnings_as_lines():
        source = open_model(model, weights=weights, num_classes=num_classes)
        guard = fit_guard(
            source,
            images,
            calibrate,
            method=method,
            alpha=alpha,
            per_class=per_class,
            preprocessing=prepared(source.native, **_flags(resize, crop, mean, std, interpolation)),
            names=() if classes is None else read_names(classes),
            upright=upright,
            limit=limit,
            cache=None if no_cache else (cache or default_cache()),
            progress=False if json or quiet else None,
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


def score(
    detector: DetectorOption,
    model: ModelOption,
    images: Annotated[str, typer.Option(help=f"The images to score: {IMAGES}.")],
    weights: WeightsOption = None,
    out: Annotated[
        Path | None, typer.Option(help="scores.csv, .jsonl or .parquet [default: CSV on standard output].")
    ] = None,
    gallery: Annotated[Path | None, typer.Option(help="A page with the most and the least trusted images.")] = None,
    num_classes: ClassesOption = None,
    resize: ResizeOption = None,
    crop: CropOption = None,
    mean: MeanOption = "",
    std: StdOption = "",
    interpolation: InterpolationOption = None,
    batch_size: BatchOption = 32,
    json: Annotated[
        bool, typer.Option("--json", help="JSON lines on standard output; with --out the summary as JSON.")
    ] = False,
    quiet: QuietOption = False,
) -> None:
    """Score images: class, score, p-value, accepted or not, in the order given.

    With --out, a run that was stopped goes on where it was. Images that cannot be read have a row with the error,
    and the exit status is 3. The preprocessing comes from the guard; flags that differ from it are an error.
    """
    from oodshape.guard import Guard
    from oodshape.inputs import Listing
    from oodshape.report.gallery import Extremes, write_gallery
    from oodshape.scorefile import score_to_file, score_to_stream

    _check_folder(out, gallery)
    guard = Guard.load(detector)
    flags = _flags(resize, crop, mean, std, interpolation)
    source = _source(guard, model, weights, num_classes, flags)
    listing = Listing.of(images)
    extremes = Extremes()
    if out is None:
        tally = score_to_stream(
            guard, source, listing, sys.stdout, json_lines=json, batch_size=batch_size, watch=extremes.add
        )
    else:
        show = False if json or quiet else None
        tally = score_to_file(guard, source, listing, out, batch_size=batch_size, progress=show, watch=extremes.add)
    if gallery is not None:
        write_gallery(extremes, gallery, listing.file)
    if out is not None and json:
        typer.echo(encoder.dumps(vars(tally) | {"out": str(out)}))
    elif not quiet:
        for line in [*tally.lines(), *(f"wrote {file}" for file in (out, gallery) if file is not None)]:
            typer.echo(line, err=out is None)
    if tally.unreadable:
        raise typer.Exit(UNREADABLE)


def inspect(
    detector: Annotated[Path, typer.Argument(metavar="FILE", help="The file that fit wrote.")],
    json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Show what a guard is: method, threshold, promise, preprocessing, network, classes."""
    from oodshape.guard import Guard
    from oodshape.inspecting import facts, lines

    guard = Guard.load(detector)
    if json:
        typer.echo(encoder.dumps(facts(guard)))
        return
    for what, value in lines(guard):
        typer.echo(f"{what:<14} {value}")


def check(
    detector: DetectorOption,
    model: ModelOption,
    id: Annotated[str, typer.Option(help=f"Images that the network should accept: {IMAGES}.")],
    ood: Annotated[list[str], typer.Option(help="Images that it should reject; may be given several times.")],
    weights: WeightsOption = None,
    out: Annotated[Path | None, typer.Option(help="The page to write, such as check.html.")] = None,
    num_classes: ClassesOption = None,
    batch_size: BatchOption = 32,
    json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON and nothing else.")] = False,
    quiet: QuietOption = False,
) -> None:
    """Check a guard on images of your own: how many of each set it accepts, beside a threshold on the softmax."""
    from rich.console import Console

    from oodshape.checking import check_guard
    from oodshape.guard import Guard
    from oodshape.inputs import Listing
    from oodshape.report.check_page import HEAD, NOTE, check_rows, verdict, write_check
    from oodshape.report.listing import show_columns

    _check_folder(out)
    guard = Guard.load(detector)
    source = _source(guard, model, weights, num_classes, {})
    names = [Listing.of(each).name for each in ood]
    sets = dict(zip(names if len(set(names)) == len(names) else ood, ood, strict=True))
    found = check_guard(guard, source, id, sets, batch_size=batch_size, progress=False if json or quiet else None)
    if out is not None:
        write_check(found, out)
    if json:
        said = {"rejected_id": found.rejected, "promised": found.promised, "sets": found.rows()}
        typer.echo(encoder.dumps(said | {"unreadable": found.unreadable}))
    elif not quiet:
        show_columns(HEAD, check_rows(found), Console(highlight=False))
        typer.echo(NOTE)
        typer.echo(verdict(found))
        for path, why in list(found.unreadable.items())[:1]:
            typer.echo(f"{len(found.unreadable):,} could not be read; {path}: {why}")
        if out is not None:
            typer.echo(f"page: {out}")
    if found.unreadable:
        raise typer.Exit(UNREADABLE)


def _source(guard: Guard, model: str, weights: Path | None, num_classes: int | None, flags: dict[str, Any]) -> Source:
    """The guard's network; flags must say what the guard says."""
    said = replace(guard.about.preprocessing, **flags) if flags else None
    return guard.opened(model, weights=weights, num_classes=num_classes, preprocessing=said)


def _flags(
    resize: int | None, crop: int | None, mean: str, std: str, interpolation: Interpolation | None
) -> dict[str, Any]:
    """The parts of a preprocessing that were given, by name."""
    given = {
        "resize": resize,
        "crop": crop,
        "mean": _numbers("--mean", mean),
        "std": _numbers("--std", std),
        "interpolation": None if interpolation is None else interpolation.value,
    }
    return {name: value for name, value in given.items() if value}


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.replace(",", " ").split())
    except ValueError:
        raise InputError(f"{flag} takes numbers separated by commas, got {text!r}") from None


def _check_folder(*files: Path | None) -> None:
    """Refuse a file in a folder that is not there, before any work is done."""
    for file in files:
        if file is not None and not file.parent.is_dir():
            raise InputError(f"cannot write {file}: the folder {file.parent} does not exist")


@contextmanager
def _warnings_as_lines() -> Iterator[None]:
    """Warnings as one line each on stderr, as they come."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        warnings.simplefilter("always", UserWarning)
        yield


def _show(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"warning: {message}\n")
