"""Options that commands share, in bundles, and how these become values: a new shared option is added here, once."""

from __future__ import annotations

import re
import sys
import warnings
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from oodshape.core.errors import InputError

if TYPE_CHECKING:
    from oodshape.guard.guard import Guard
    from oodshape.networks.loading import Source


LIMITS = "What one file may cost"


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
DetectorOption = Annotated[Path, typer.Option(help="The file that fit wrote.")]
ExportableOption = Annotated[bool, typer.Option("--exportable", help="Only methods that can go into an ONNX graph.")]
UprightOption = Annotated[
    bool, typer.Option("--upright", help="Turn images as EXIF says; torchvision's and timm's loaders do not.")
]
QuietOption = Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most N images of each set, drawn with a fixed seed.")]
DataOption = Annotated[Path | None, typer.Option(envvar="OODSHAPE_DATA", help="The folder that holds the data sets.")]
TrustOption = Annotated[
    bool,
    typer.Option(
        "--trust-code",
        help="Run code that a file holds or names: a .pt2 archive, a function in a TOML or results file, a guard's "
        "class.",
    ),
]
HeadOption = Annotated[
    str | None, typer.Option(metavar="LAYER", help="The layer that gives the logits, where it is not found.")
]


@dataclass(frozen=True, kw_only=True)
class Weights:
    """What may have to be said about a network that is known by name."""

    weights: Annotated[
        Path | None, typer.Option(help="The network's weights: .safetensors, or a torch file that holds tensors only.")
    ] = None
    num_classes: Annotated[
        int | None, typer.Option("--num-classes", min=1, help="Where the weights do not tell it.")
    ] = None
    head: HeadOption = None
    trust_code: TrustOption = False

    def said(self) -> dict[str, Any]:
        """What opens the network beside its name."""
        return {
            "weights": self.weights,
            "num_classes": self.num_classes,
            "head": self.head,
            "trust_code": self.trust_code,
        }


@dataclass(frozen=True, kw_only=True)
class Network(Weights):
    """A network, as a user names it."""

    model: Annotated[
        str,
        typer.Option(
            help="timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER, zoo:NAME, package.module:function, or a torch.export "
            "archive (.pt2, with --trust-code)."
        ),
    ]

    def words(self) -> list[str]:
        """The same options for another command."""
        given = {"--model": self.model, "--weights": self.weights, "--num-classes": self.num_classes}
        words = [word for name, value in given.items() if value is not None for word in (name, str(value))]
        return [*words, "--trust-code"] if self.trust_code else words


@dataclass(frozen=True, kw_only=True)
class Running:
    """How a network runs."""

    device: Annotated[
        str, typer.Option(metavar="DEVICE", help="auto (the GPU that is here), cpu, cuda, cuda:N, mps or xpu.")
    ] = "auto"
    precision: Annotated[
        Precision | None,
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


SCORING = Running(batch_size=32)


@dataclass(frozen=True, kw_only=True)
class Preparing:
    """How images are prepared, in place of the model's own way."""

    resize: Annotated[
        str,
        typer.Option(
            metavar="SIZE",
            help="Instead of the model's own: 256 (the shorter side), or 64x64 (exactly, HEIGHTxWIDTH; then there is "
            "no crop but --crop).",
        ),
    ] = ""
    crop: Annotated[int | None, typer.Option(min=1, help="The side of the centre crop.")] = None
    mean: Annotated[str, typer.Option(help="One number per channel, fractions of 255: 0.485,0.456,0.406.")] = ""
    std: Annotated[str, typer.Option(help="One number per channel, fractions of 255.")] = ""
    interpolation: Annotated[
        Interpolation | None, typer.Option(metavar="KIND", help="How images are resized: bilinear, bicubic or nearest.")
    ] = None

    def said(self) -> dict[str, Any]:
        """The parts that were given, by name."""
        given = {
            "resize": _size("--resize", self.resize),
            "crop": self.crop,
            "mean": _numbers("--mean", self.mean),
            "std": _numbers("--std", self.std),
            "interpolation": None if self.interpolation is None else self.interpolation.value,
        }
        return {name: value for name, value in given.items() if value}


def opened(guard: Guard, network: Network, running: Running, preparing: Preparing | None = None) -> Source:
    """The guard's network; what is said about images must be what the guard says."""
    flags = {} if preparing is None else preparing.said()
    said = replace(guard.preparation, **flags) if flags else None
    return guard.opened(network.model, preprocessing=said, **network.said(), **running.place())


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

        from oodshape.images.decode.limits import Limits

        Limits(self.max_pixels, self.max_aspect, self.max_inflated).use()
        warnings.filterwarnings("ignore", category=DecompressionBombWarning)  # the limits speak for themselves


class EngineName(Enum):
    """What runs the work."""

    local = "local"
    ray = "ray"


@dataclass(frozen=True, kw_only=True)
class Engine:
    """What runs the work: this process, or actors of Ray on this machine or on the cluster of RAY_ADDRESS."""

    engine: Annotated[EngineName, typer.Option(help="This process, or actors of Ray (RAY_ADDRESS: a cluster).")] = (
        EngineName.local
    )
    actors: Annotated[
        int | None, typer.Option(min=1, help="Actors of Ray \\[default: one per GPU, or per two cores].")
    ] = None
    num_gpus: Annotated[float, typer.Option("--num-gpus", min=0, help="GPUs that each actor of Ray takes.")] = 0.0

    @property
    def is_ray(self) -> bool:
        """Whether Ray does it."""
        return self.engine is EngineName.ray

    def pool(self) -> Any:
        """The actors."""
        from oodshape.engines.ray import Pool

        return Pool(self.actors, self.num_gpus)


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
