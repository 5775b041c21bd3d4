"""What the commands around a guard share: their options, and how these become values."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from enum import Enum
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodshape.core.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from oodshape.guard.guard import Guard
    from oodshape.networks.opening import Source

LIMITS = "What one file may cost"
PIXELS, ASPECT, INFLATED = 3 << 24, 100, 1 << 28  # as in Limits, which is not imported for the help
UNREADABLE = 3  # the exit status where some images could not be read


class Interpolation(Enum):
    """How images are resized."""

    bilinear = "bilinear"
    bicubic = "bicubic"
    nearest = "nearest"


class Precision(Enum):
    """The arithmetic of a network; all but float32 under autocast."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


IMAGES = (
    "a folder, a text or CSV list, a quoted glob, an image, tar or Parquet files, an address such as "
    "s3://bucket/folder, or - for paths on standard input"
)
ColumnOption = Annotated[
    str | None, typer.Option(help="The column of a Parquet file that holds the images \\[default: image].")
]
ModelOption = Annotated[
    str,
    typer.Option(
        help="timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER, zoo:NAME, package.module:function, or a torch.export "
        "archive (.pt2)."
    ),
]
WeightsOption = Annotated[
    Path | None, typer.Option(help="The network's weights: .safetensors, or a torch file that holds tensors only.")
]
DetectorOption = Annotated[Path, typer.Option(help="The file that fit wrote.")]
ClassesOption = Annotated[int | None, typer.Option("--num-classes", min=1, help="Where the weights do not tell it.")]
ResizeOption = Annotated[
    str,
    typer.Option(
        metavar="SIZE",
        help="Instead of the model's own: 256 (the shorter side), or 64x64 (exactly, HEIGHTxWIDTH; then there is no "
        "crop but --crop).",
    ),
]
CropOption = Annotated[int | None, typer.Option(min=1, help="The side of the centre crop.")]
MeanOption = Annotated[str, typer.Option(help="One number per channel, fractions of 255: 0.485,0.456,0.406.")]
StdOption = Annotated[str, typer.Option(help="One number per channel, fractions of 255.")]
InterpolationOption = Annotated[Interpolation | None, typer.Option(help="How images are resized.")]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
MaxPixelsOption = Annotated[
    int, typer.Option("--max-pixels", min=1, help="An image with more is an unreadable one.", rich_help_panel=LIMITS)
]
MaxAspectOption = Annotated[
    int,
    typer.Option(
        "--max-aspect",
        min=1,
        help="An image that is more times as long as wide is an unreadable one.",
        rich_help_panel=LIMITS,
    ),
]
MaxInflatedOption = Annotated[
    int,
    typer.Option(
        "--max-inflated",
        min=1,
        help="Bytes that a compressed file may take in memory, or 8 times its size.",
        rich_help_panel=LIMITS,
    ),
]
HeadOption = Annotated[
    str | None, typer.Option(metavar="LAYER", help="The layer that gives the logits, where it is not found.")
]

# how the network runs
DeviceOption = Annotated[
    str, typer.Option(metavar="DEVICE", help="auto (the GPU that is here), cpu, cuda, cuda:N, mps or xpu.")
]
PrecisionOption = Annotated[
    Precision | None, typer.Option(help="The network's arithmetic \\[default: float32, or as the guard was fitted].")
]
BatchOption = Annotated[int, typer.Option(min=1, help="Images that go through the network together.")]
WorkersOption = Annotated[
    int | None, typer.Option(min=0, help="Threads that decode images \\[default: one per core, at most 4].")
]

# of benchmarks and studies
DataOption = Annotated[Path | None, typer.Option(envvar="OODSHAPE_DATA", help="The folder that holds the data sets.")]
WeightsFolderOption = Annotated[
    Path | None,
    typer.Option(envvar="OODSHAPE_WEIGHTS", help="The folder that holds weights, NETWORK.safetensors or .pth."),
]
CacheOption = Annotated[
    Path | None, typer.Option(help="Where features are kept between runs \\[default: the user's cache folder].")
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most N images of each set, drawn with a fixed seed.")]
OnlyNetworksOption = Annotated[str, typer.Option(help="Only these networks, separated by commas.")]


def use_limits(pixels: int, aspect: int, inflated: int) -> None:
    """Let these limits hold for the command."""
    from PIL.Image import DecompressionBombWarning

    from oodshape.images.limits import Limits

    Limits(pixels, aspect, inflated).use()
    warnings.filterwarnings("ignore", category=DecompressionBombWarning)  # the limits speak for themselves


def words(text: str) -> tuple[str, ...]:
    """The parts of a list separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


def console() -> Console:
    """The terminal, or what stands in its place."""
    from rich.console import Console

    return Console(highlight=False, soft_wrap=False)


def source(
    guard: Guard,
    model: str,
    weights: Path | None,
    num_classes: int | None,
    flags: dict[str, Any],
    *,
    head: str | None,
    device: str,
    precision: Precision | None,
) -> Source:
    """The guard's network; flags must say what the guard says."""
    said = replace(guard.preparation, **flags) if flags else None
    return guard.opened(
        model,
        weights=weights,
        num_classes=num_classes,
        preprocessing=said,
        head=head,
        device=chosen_device(device),
        precision=None if precision is None else precision.value,
    )


def chosen_device(name: str) -> str:
    """The device of a name; one that `auto` chose, and that is no CPU, is said on stderr."""
    from oodshape.networks.device import AUTO, described, device_named

    device = device_named(name)
    if name == AUTO and device.type != "cpu":
        sys.stderr.write(f"device: {described(device)}\n")
    return str(device)


def flags(resize: str, crop: int | None, mean: str, std: str, interpolation: Interpolation | None) -> dict[str, Any]:
    """The parts of a preprocessing that were given, by name."""
    given = {
        "resize": _size("--resize", resize),
        "crop": crop,
        "mean": _numbers("--mean", mean),
        "std": _numbers("--std", std),
        "interpolation": None if interpolation is None else interpolation.value,
    }
    return {name: value for name, value in given.items() if value}


def _size(flag: str, text: str) -> int | tuple[int, int] | None:
    """256 -> 256, 64x48 -> (64, 48), nothing -> None."""
    if not text:
        return None
    found = re.fullmatch(r"([1-9][0-9]*)(?:[x*]([1-9][0-9]*))?", text.replace(" ", "").lower())
    if found is None:
        raise InputError(f"{flag} takes a number of pixels (the shorter side) or HEIGHTxWIDTH, got {text!r}")
    height, width = found.groups()
    return int(height) if width is None else (int(height), int(width))


def _numbers(flag: str, text: str) -> tuple[float, ...]:
    try:
        return tuple(float(word) for word in text.replace(",", " ").split())
    except ValueError:
        raise InputError(f"{flag} takes numbers separated by commas, got {text!r}") from None


def check_out(*files: Path | None) -> None:
    """Refuse a file that could not be written, before any work is done."""
    for file in files:
        if file is None:
            continue
        if file.exists() and not file.is_file():
            what = "a folder; name a file in it" if file.is_dir() else "no ordinary file; name another"
            raise InputError(f"cannot write {file}: it is {what}")
        if not file.parent.is_dir():
            raise InputError(f"cannot write {file}: the folder {file.parent} does not exist")
        try:
            with TemporaryFile(dir=file.parent):
                pass
        except OSError as error:
            raise InputError(f"cannot write {file}: {error.strerror}; choose another folder") from None


@contextmanager
def warnings_as_lines() -> Iterator[None]:
    """Warnings as one line each on stderr, as they come."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        warnings.simplefilter("always", UserWarning)
        yield


def _show(message: Warning | str, *_: Any, **__: Any) -> None:
    sys.stderr.write(f"warning: {message}\n")
