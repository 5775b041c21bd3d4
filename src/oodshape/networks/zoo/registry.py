"""The table of networks: a name, the network behind it and its preprocessing.

The networks for ImageNet have torchvision's or timm's names; all others carry their ID set in the name. The table is
`networks/model_names.csv`, the addresses of the weights are in `download_sources.csv`. The paper resizes bilinearly,
whatever the network's own way; OpenOOD's own checkpoints, which no table of the paper has, have one preprocessing.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import nn

from oodshape.core.errors import InputError, import_optional
from oodshape.images.datasets.download_sources import describe_sources, list_sources
from oodshape.images.decode.preprocessing import CIFAR, DIGITS, IMAGENET, Preprocessing
from oodshape.networks.model_names import KNOWN, Family, check_zoo_name
from oodshape.networks.weights import PICKLED, load_weights
from oodshape.networks.zoo.cifar_nets import DenseNet, MixerNano, SmallResNet18
from oodshape.networks.zoo.digits_nets import SMALL_NETS, load_small_net

Make = Callable[[int], nn.Module]  # number of classes -> network


@dataclass(frozen=True)
class ModelEntry:
    """A network: how to make it, and its preprocessing.

    `paper` is the preprocessing behind the paper's tables, `native` the one that the weights were made for.
    """

    name: str
    make: Make = field(repr=False)
    paper: Preprocessing
    native: Preprocessing
    family: Family
    id_set: str
    classes: int

    @property
    def weights(self) -> str:
        """Where the weights come from."""
        sources = list_sources().get(self.name)
        return describe_sources(sources) if sources else "shipped with the package"


def build(name: str, weights: str | Path | None = None, num_classes: int | None = None) -> nn.Module:
    """The network called `name` in eval mode, with the weights of a file.

    Without a file, the digits' networks have the weights that come with the package, and all others are
    untrained: `MODELS[name].weights` says where to get a file.

    >>> build("digits-vit")(torch.zeros(2, 1, 16, 16)).shape
    torch.Size([2, 8])
    """
    entry = model_entry(name)
    classes = entry.classes if num_classes is None else num_classes
    if classes < 1:
        raise InputError(f"num_classes must be at least 1, got {classes}")
    net = entry.make(classes)
    if weights is not None:
        load_weights(net, weights)
    if entry.family == "ConvNet":
        # 1.4 times faster on CPUs, the same values; torch's annotations leave this form of `to` out
        net = net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    return net.eval()


def model_entry(name: str) -> ModelEntry:
    """The row of a name, or an error that lists the names like it."""
    check_zoo_name(name)
    return MODELS[name]


def find_weights(name: str, folder: Path | None) -> Path | None:
    """The file in a folder with the weights of a network: called like it, as published, or as the authors call it."""
    names = [f"{model_entry(name).name}{end}" for end in (".safetensors", *PICKLED)]
    names += [source.to for source in list_sources().get(name, ())] + [KNOWN[name].authors or "-"]
    return next((folder / file for file in names if (folder / file).is_file()), None) if folder else None


def weights_needed(name: str, folder: Path | None) -> str:
    """Say what is missing to run a network, where to get it and where to put it."""
    file, place = f"{name}.safetensors (or .pth)", folder or "DIR"
    where = f"put them at {folder / file}" if folder else f"put them into a folder as {file} and name it with --weights"
    more = "" if all(source.is_verified for source in list_sources().get(name, ())) else " --unverified"
    command = f"oodshape data get {name} --weights {place}{more}"
    return f"needs weights: run `{command}`, or get {model_entry(name).weights}; {where}"


def library(name: str, extra: str = "timm") -> Any:
    """A library's module, imported when the first of its networks is asked for."""
    try:
        return import_optional(name, extra, "this network")
    except (ImportError, RuntimeError, AttributeError) as error:
        if "torchvision" in f"{name} {error}":  # timm and transformers import it, and fail with it
            raise InputError(
                f"the compiled operators of torchvision do not load next to torch {torch.__version__} ({error}): the "
                "two are not of one build, such as a CPU torch next to a CUDA torchvision. Install them together, from "
                "one place: pip install --force-reinstall torch torchvision (for the CPU: --index-url "
                "https://download.pytorch.org/whl/cpu)"
            ) from None
        raise InputError(f"{name} does not load: {error}; install the version that fits your torch") from None


_OWN: dict[str, Make] = {
    "densenet": DenseNet,
    "mixer_nano": MixerNano,
    "small_resnet18": SmallResNet18,
}
_NORMALISATIONS = {
    "digits": (DIGITS.mean, DIGITS.std),
    "imagenet": (IMAGENET.mean, IMAGENET.std),
    "cifar": (CIFAR.mean, CIFAR.std),  # of CIFAR-100 too, as in the paper
    "halves": ((0.5,) * 3, (0.5,) * 3),
    "lite": ((127 / 255,) * 3, (128 / 255,) * 3),  # (255 x - 127) / 128
    "openood-cifar10": (CIFAR.mean, (0.2470, 0.2435, 0.2616)),
    "openood-cifar100": ((0.5071, 0.4867, 0.4408), (0.2675, 0.2565, 0.2761)),
}


def _maker(made_by: str) -> Make:
    kind, name = made_by.split()
    if kind == "torchvision":
        return lambda classes: getattr(library("torchvision.models"), name)(num_classes=classes)
    if kind == "timm":
        return lambda classes: library("timm").create_model(name, num_classes=classes)
    if kind == "digits":
        return lambda classes: load_small_net(name) if classes == 8 else SMALL_NETS[name](classes=classes)
    return _OWN[name]


def _steps(text: str) -> Preprocessing:
    normalisation, *sides, interpolation = text.split()
    resize, crop = (None if side == "-" else int(side) for side in sides)
    return Preprocessing(*_NORMALISATIONS[normalisation], resize, crop, interpolation)  # type: ignore[arg-type]


MODELS: dict[str, ModelEntry] = {
    name: ModelEntry(name, _maker(known.made_by), _steps(known.paper), _steps(known.native), *known[:3])
    for name, known in KNOWN.items()
}
