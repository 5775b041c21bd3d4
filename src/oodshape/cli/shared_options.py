"""Options of the command line that several commands share, and the values made from them.

Options that Python has too are declared in `core.options`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from oodshape.core.errors import InputError, check_fraction
from oodshape.core.options import CacheOptions, Help, ModelOptions, RunOptions, SubsetOptions
from oodshape.core.text import parse_settings

ModelOption = Annotated[
    str,
    Help(
        "timm:NAME, torchvision:NAME, hf:NAME_OR_FOLDER, zoo:NAME, package.module:function, or a torch.export archive "
        "(.pt2, with --trust-code)."
    ),
]
GuardOption = Annotated[Path, Help("The guard: a file that fit wrote.")]
ProviderOption = Annotated[str, Help("The execution provider of onnxruntime for an exported file, such as CUDA.")]
JsonOption = Annotated[bool, Help("Print the result as JSON and nothing else.")]
DataOption = Annotated[Path | None, typer.Option(envvar="OODSHAPE_DATA", help="The folder that holds the data sets.")]


def _check_results(path: Path) -> Path:
    """Refuse a missing file before the slow import of torch."""
    found = path / "results.json" if path.is_dir() else path
    if not found.is_file():
        raise InputError(f"there is no file {found}")
    return path


ResultsArgument = Annotated[
    Path,
    typer.Argument(
        metavar="RESULTS", help="A results.json, or the folder of a benchmark run.", callback=_check_results
    ),
]
ShardOption = Annotated[str, Help("Only shard I of N (I from 1 to N).", metavar="I/N")]
EngineOption = Annotated[
    str,
    Help(
        "local (this process), ray, or ray:N for N actors on this machine or on the cluster of RAY_ADDRESS "
        "[default actors: one per GPU, or one per two cores].",
        metavar="ENGINE",
    ),
]
ColumnsOption = Annotated[
    str,
    Help(
        "The columns of the tables, separated by commas, e.g. auroc,near-auroc,aupr-out,image-ms: metrics, and with "
        "near- or far- their means over these OOD sets. An unknown name lists all [default: auroc,fpr95].",
        metavar="METRICS",
    ),
]
ON_ANY_DEVICE = ModelOptions(device="auto")
NO_CACHE = Path("none")


@dataclass(frozen=True, kw_only=True)
class Compared(ModelOptions, SubsetOptions, CacheOptions, RunOptions):
    """The networks and images of a benchmark, and how they run."""

    device: Annotated[str | None, Help("auto (a GPU if there is one), cpu, cuda, cuda:N, mps or xpu.")] = "auto"
    models: Annotated[str, Help("Only these networks, by name or id, separated by commas.")] = ""
    data: DataOption = None
    weights: Annotated[
        Path | None,
        typer.Option(envvar="OODSHAPE_WEIGHTS", help="The folder that holds weights, NETWORK.safetensors or .pth."),
    ] = None

    def as_kwargs(self) -> dict[str, Any]:
        """The same as options of a run, with the device and the cache folder that are meant."""
        resolved = resolve_device(self)
        return vars(resolved) | {"cache": cache_folder(self.cache), "models": words(self.models)}


def parse_preprocessing(text: str) -> tuple[dict[str, Any], bool]:
    """The settings in a text such as `resize=256 crop=224 mean=0.5,0.5,0.5`, by name, and whether images are turned.

    >>> parse_preprocessing("resize=64x48 upright std=0.5,0.5,0.5")
    ({'resize': (64, 48), 'std': (0.5, 0.5, 0.5)}, True)
    """
    words = text.split()
    settings = [word for word in words if word != UPRIGHT]
    found = parse_settings(settings, _SETTINGS, f"--preprocessing takes {PREPROCESSING}, separated by spaces")
    return found, UPRIGHT in words


UPRIGHT = "upright"
PREPROCESSING = (
    "resize=256 (the shorter side) or resize=64x48 (HEIGHTxWIDTH, then no crop unless it is given), crop=224, "
    "mean=0.485,0.456,0.406 and std=... (fractions of 255), interpolation=bilinear, bicubic, nearest or another, "
    "upright (rotate images as EXIF says; torchvision's and timm's loaders do not)"
)
PreprocessingOption = Annotated[str, Help(f"In place of the model's own: {PREPROCESSING}.", metavar="SETTINGS")]


def _size(text: str) -> int | tuple[int, int]:
    height, _, width = text.lower().partition("x")
    sides = int(height), int(width or height)
    if min(sides) < 1:
        raise ValueError
    return sides if width else sides[0]


def _numbers(text: str) -> tuple[float, ...]:
    return tuple(float(word) for word in text.split(","))


_SETTINGS: dict[str, Callable[[str], Any]] = {
    "resize": _size,
    "crop": int,
    "mean": _numbers,
    "std": _numbers,
    "interpolation": str,
}


def check_inputs(
    *images: str | None,
    guard: Path | None = None,
    model: str | None = None,
    opening: ModelOptions = ON_ANY_DEVICE,
    method: str | None = None,
    alpha: float | None = None,
) -> None:
    """Refuse wrong names of files, networks and methods, and a wrong alpha, before the slow import of torch."""
    from oodshape.core import files
    from oodshape.images.sources.open_images import check_paths
    from oodshape.methods.records import check_method
    from oodshape.networks.model_names import check_spec

    if guard is not None:
        files.read_header(guard, "detector")
    if model is not None:
        check_spec(model)
    if opening.weights is not None and not opening.weights.is_file():
        raise InputError(f"there is no file {opening.weights}")
    for each in images:
        if each is not None:
            check_paths(each)
    if method is not None:
        check_method(method)
    if alpha is not None:
        check_fraction("alpha", alpha)


def resolve_device(opening: ModelOptions) -> ModelOptions:
    """The same options with the device that `auto` stands for, which is printed unless it is the CPU."""
    from oodshape.networks.device import AUTO, describe_device, find_device

    device = find_device(opening.device or AUTO)
    if opening.device == AUTO and device.type != "cpu":
        sys.stderr.write(f"device: {describe_device(device)}\n")
    return replace(opening, device=str(device))


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
    from oodshape.engines.ray import ActorPool

    return ActorPool(None if found[1] is None else int(found[1]))


def words(text: str) -> tuple[str, ...]:
    """The parts of a list separated by commas."""
    return tuple(word.strip() for word in text.split(",") if word.strip())
