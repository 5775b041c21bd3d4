"""Options of the command line that several commands share, and the values made from them.

Options that Python has too are declared in `core.options`.
"""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from oodshape.core.errors import InputError
from oodshape.core.options import Help, ModelOptions

IMAGES = (
    "a folder, a text or CSV list, a quoted glob, an image, tar or Parquet files, an address such as "
    "s3://bucket/folder, or - for paths on standard input"
)
METHOD = "Method and threshold"
SCALING = "Scaling"
ModelOption = Annotated[
    str,
    typer.Option(
        help="timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER, zoo:NAME, package.module:function, or a torch.export "
        "archive (.pt2, with --trust-code).",
        rich_help_panel=ModelOptions.panel,
    ),
]
GuardOption = Annotated[Path, typer.Option(help="The guard: a file that fit wrote.")]
ExportableOption = Annotated[
    bool,
    typer.Option("--exportable", help="Only methods that can be part of an ONNX graph.", rich_help_panel=METHOD),
]
UprightOption = Annotated[
    bool, typer.Option("--upright", help="Rotate images as EXIF says; torchvision's and timm's loaders do not.")
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print the result as JSON and nothing else.")]
DataOption = Annotated[Path | None, typer.Option(envvar="OODSHAPE_DATA", help="The folder that holds the data sets.")]
ShardOption = Annotated[
    str, typer.Option(metavar="I/N", help="Only shard I of N (I from 1 to N).", rich_help_panel=SCALING)
]
EngineOption = Annotated[
    str,
    typer.Option(
        metavar="ENGINE",
        help="local (this process), ray, or ray:N for N actors on this machine or on the cluster of RAY_ADDRESS "
        "\\[default actors: one per GPU, or one per two cores].",
        rich_help_panel=SCALING,
    ),
]
ON_ANY_DEVICE = ModelOptions(device="auto")
NO_CACHE = Path("none")


@dataclass(frozen=True, kw_only=True)
class PreprocessingOptions:
    """How images are preprocessed, in place of the model's own preprocessing."""

    panel: ClassVar[str] = "Preprocessing (default: the model's own)"

    resize: Annotated[
        str,
        Help("256 (the shorter side), or 64x64 (exactly HEIGHTxWIDTH; then no crop unless --crop).", metavar="SIZE"),
    ] = ""
    crop: Annotated[int | None, Help("The side of the centre crop.", min=1)] = None
    mean: Annotated[str, Help("One number per channel, as fractions of 255: 0.485,0.456,0.406.")] = ""
    std: Annotated[str, Help("One number per channel, as fractions of 255.")] = ""
    interpolation: Annotated[str, Help("bilinear, bicubic or nearest.", metavar="KIND")] = ""

    def as_kwargs(self) -> dict[str, Any]:
        """The settings that were given, by name."""
        given = {
            "resize": _size("--resize", self.resize),
            "crop": self.crop,
            "mean": _numbers("--mean", self.mean),
            "std": _numbers("--std", self.std),
            "interpolation": self.interpolation,
        }
        return {name: value for name, value in given.items() if value}


def resolve_device(opening: ModelOptions) -> ModelOptions:
    """The same options with the device that `auto` stands for, which is printed unless it is the CPU."""
    from oodshape.networks.device import AUTO, described, device_named

    device = device_named(opening.device or AUTO)
    if opening.device == AUTO and device.type != "cpu":
        sys.stderr.write(f"device: {described(device)}\n")
    return replace(opening, device=str(device))


def model_words(model: str, opening: ModelOptions) -> list[str]:
    """The options that name the same model to another command."""
    given = {"--model": model, "--weights": opening.weights}
    words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
    return [*words, "--trust-code"] if opening.trust_code else words


def cache_folder(cache: Path | None) -> Path | None:
    """The folder that keeps features: the one that was named, the user's own by default, or none."""
    from oodshape.core.machine import default_cache

    return None if cache == NO_CACHE else cache or default_cache()


def ray_pool(engine: str) -> Any:
    """The pool of Ray actors that `--engine ray:N` names; None for the local engine."""
    found = re.fullmatch(r"local|ray(?::([1-9][0-9]*))?", engine)
    if found is None:
        raise InputError(f"--engine takes local, ray or ray:N, got {engine!r}")
    if engine == "local":
        return None
    from oodshape.engines.ray import Pool

    return Pool(None if found[1] is None else int(found[1]))


def words(text: str) -> tuple[str, ...]:
    """The parts of a list separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())


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


LIMITS = "What one file may cost"
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most N images of each set, drawn with a fixed seed.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Run code that a file holds or names: a .pt2 archive, a function in a TOML or results file.",
    ),
]
HeadOption = Annotated[
    str | None, typer.Option(metavar="LAYER", help="The layer that gives the logits, where it is not found.")
]


class PrecisionName(Enum):
    """The arithmetic of a network; all but float32 under autocast."""

    float32 = "float32"
    bfloat16 = "bfloat16"
    float16 = "float16"


@dataclass(frozen=True, kw_only=True)
class Running:
    """How a network runs."""

    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (the GPU that is here), cpu, cuda, cuda:N, mps or xpu.")
    ] = "auto"
    precision: Annotated[
        PrecisionName | None,
        typer.Option(
            metavar="KIND",
            help="The network's arithmetic: float32, bfloat16 or float16 \\[default: float32, or as the "
            "guard was fitted].",
        ),
    ] = None
    batch_size: Annotated[int, typer.Option(min=1, help="Images that go through the network together.")] = 64
    workers: Annotated[
        int | None, typer.Option(min=0, help="Threads that decode images \\[default: one per core, at most 4].")
    ] = None

    def place(self, precision: str | None = None) -> dict[str, Any]:
        """Where it runs, and in which arithmetic, `precision` where none is said.

        A device that `auto` chose, and that is no CPU, is said on stderr.
        """
        from oodshape.networks.device import AUTO, described, device_named

        device = device_named(self.device)
        if self.device == AUTO and device.type != "cpu":
            sys.stderr.write(f"device: {described(device)}\n")
        return {"device": str(device), "precision": precision if self.precision is None else self.precision.value}

    def feeding(self) -> dict[str, Any]:
        """How images come to it."""
        return {"batch_size": self.batch_size, "workers": self.workers}


@dataclass(frozen=True, kw_only=True)
class Costs:
    """What one file may cost; the defaults are those of Limits, which is not imported for the help."""

    max_pixels: Annotated[
        int,
        typer.Option("--max-pixels", min=1, help="An image with more is an unreadable one.", rich_help_panel=LIMITS),
    ] = 3 << 24
    max_aspect: Annotated[
        int,
        typer.Option(
            "--max-aspect",
            min=1,
            help="An image that is more times as long as wide is an unreadable one.",
            rich_help_panel=LIMITS,
        ),
    ] = 100
    max_inflated: Annotated[
        int,
        typer.Option(
            "--max-inflated",
            min=1,
            help="Bytes that a compressed file may take in memory, or 8 times its size.",
            rich_help_panel=LIMITS,
        ),
    ] = 1 << 28

    def hold(self) -> None:
        """Let these limits hold for the command."""
        from PIL.Image import DecompressionBombWarning

        from oodshape.images.limits import Limits

        Limits(self.max_pixels, self.max_aspect, self.max_inflated).use()
        warnings.filterwarnings("ignore", category=DecompressionBombWarning)  # the limits speak for themselves


@dataclass(frozen=True, kw_only=True)
class Keeping:
    """What is kept between runs."""

    cache: Annotated[
        Path | None, typer.Option(help="Where features are kept between runs \\[default: the user's cache folder].")
    ] = None
    no_cache: Annotated[bool, typer.Option("--no-cache", help="Keep nothing between runs.")] = False

    @property
    def folder(self) -> Path | None:
        """Where features are kept, if they are."""
        from oodshape.core.machine import default_cache

        return None if self.no_cache else (self.cache or default_cache())
