"""The table of networks: a name, the network behind it and its preprocessing.

The networks for ImageNet have torchvision's or timm's names; all others carry their ID set in the name. Their families
and classes are in `networks.known`, the addresses of their weights in `images/datasets/sources.csv`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import nn

from oodshape.core.errors import InputError
from oodshape.images.datasets.sources import all_sources, describe_sources
from oodshape.images.decode.preprocessing import CIFAR, DIGITS, IMAGENET, Preprocessing
from oodshape.networks.known import KNOWN, Family, check_known
from oodshape.networks.weights import PICKLED, load_weights
from oodshape.networks.zoo.cifar_nets import DenseNet, MixerNano, SmallResNet18
from oodshape.networks.zoo.digits_nets import SmallConvNet, SmallMixer, SmallNet, SmallViT, small_net
from oodshape.networks.zoo.efficientnet_lite import EfficientNetLite0

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

    @property
    def family(self) -> Family:
        return KNOWN[self.name].family

    @property
    def id_set(self) -> str:
        return KNOWN[self.name].id_set

    @property
    def classes(self) -> int:
        return KNOWN[self.name].classes

    @property
    def weights(self) -> str:
        """Where the weights come from."""
        sources = all_sources().get(self.name)
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
    check_known(name)
    return MODELS[name]


def find_weights(name: str, folder: Path | None) -> Path | None:
    """The file in a folder with the weights of a network: called like the network, or as it was published."""
    names = [f"{model_entry(name).name}{end}" for end in (".safetensors", *PICKLED)]
    names += [source.to for source in all_sources().get(name, ())]
    return next((folder / file for file in names if (folder / file).is_file()), None) if folder else None


def weights_needed(name: str, folder: Path | None) -> str:
    """What is missing to run a network, where to get it and where to put it."""
    file, place = f"{name}.safetensors (or .pth)", folder or "DIR"
    where = f"put them at {folder / file}" if folder else f"put them into a folder as {file} and name it with --weights"
    return (
        f"needs weights: run `oodshape data get {name} --weights {place}`, or get {model_entry(name).weights}; {where}"
    )


def library(name: str, extra: str = "timm") -> Any:
    """A library's module, imported when the first of its networks is asked for."""
    try:
        return import_module(name)
    except ModuleNotFoundError as error:
        raise InputError(f"this network needs the extra: pip install 'oodshape[{extra}]' ({error})") from None
    except (ImportError, RuntimeError, AttributeError) as error:
        if "torchvision" in f"{name} {error}":  # timm and transformers import it, and fail with it
            raise InputError(
                f"the compiled operators of torchvision do not load beside torch {torch.__version__} ({error}): the "
                "two are not of one build, such as a CPU torch beside a CUDA torchvision. Install them together, from "
                "one place: pip install --force-reinstall torch torchvision (for the CPU: --index-url "
                "https://download.pytorch.org/whl/cpu)"
            ) from None
        raise InputError(f"{name} does not load: {error}; install the version that fits your torch") from None


def _made_by_torchvision(name: str) -> Make:
    return lambda classes: getattr(library("torchvision.models"), name)(num_classes=classes)


def _made_by_timm(name: str) -> Make:
    return lambda classes: library("timm").create_model(name, num_classes=classes)


# From a row of the table to an entry. The paper resizes bilinearly, whatever the network's own way.


def _digits(name: str, untrained: Callable[..., SmallNet]) -> ModelEntry:
    def make(classes: int) -> nn.Module:
        return small_net(name) if classes == 8 else untrained(classes=classes)

    return ModelEntry(f"digits-{name}", make, DIGITS, DIGITS)


def _torchvision(name: str, resize: int, native: Preprocessing) -> ModelEntry:
    paper = replace(native, resize=resize, interpolation="bilinear")
    return ModelEntry(name, _made_by_torchvision(name), paper, native)


def _timm(name: str, own: str, resize: int, native: Preprocessing) -> ModelEntry:
    return ModelEntry(name, _made_by_timm(own), replace(IMAGENET, resize=resize), native)


def _cifar(id_set: str) -> list[ModelEntry]:
    """CIFAR-100 is normalised with the mean and std of CIFAR-10, as in the paper."""
    small, large = (replace(CIFAR, resize=side, crop=side) for side in (32, 224))
    vit = _made_by_timm("vit_base_patch16_224")
    return [
        ModelEntry(f"{id_set}-densenet101", DenseNet, small, small),
        ModelEntry(f"{id_set}-mixer_nano", MixerNano, small, small),
        ModelEntry(f"{id_set}-vit_b_16", vit, large, replace(_HALVES, resize=224)),
    ]


def _lite(name: str) -> ModelEntry:
    paper = replace(IMAGENET, mean=(127 / 255,) * 3, std=(128 / 255,) * 3)  # (255 x - 127) / 128
    return ModelEntry(name, EfficientNetLite0, paper, replace(paper, interpolation="bicubic"))


def _openood() -> list[ModelEntry]:
    """OpenOOD's own checkpoints, which no table of the paper has: both preprocessings are theirs."""
    wide = replace(CIFAR, resize=32, crop=32)
    cifar10 = replace(wide, std=(0.2470, 0.2435, 0.2616))
    cifar100 = replace(wide, mean=(0.5071, 0.4867, 0.4408), std=(0.2675, 0.2565, 0.2761))
    rows: list[tuple[str, Make, Preprocessing]] = [
        ("cifar10", SmallResNet18, cifar10),
        ("cifar100", SmallResNet18, cifar100),
        ("imagenet200", _made_by_torchvision("resnet18"), IMAGENET),
    ]
    return [ModelEntry(f"{of}-resnet18", make, own, own) for of, make, own in rows]


_BICUBIC = replace(IMAGENET, interpolation="bicubic")
_HALVES = replace(_BICUBIC, mean=(0.5,) * 3, std=(0.5,) * 3)

_ENTRIES = [
    _digits("convnet", SmallConvNet),
    _digits("vit", SmallViT),
    _digits("mixer", SmallMixer),
    _torchvision("resnet50", 256, IMAGENET),
    _torchvision("mobilenet_v2", 256, IMAGENET),
    _torchvision("vit_b_16", 256, IMAGENET),
    _torchvision("vit_l_16", 256, replace(IMAGENET, resize=242)),
    _torchvision("swin_t", 232, replace(_BICUBIC, resize=232)),
    _torchvision("swin_s", 246, replace(_BICUBIC, resize=246)),
    _torchvision("swin_b", 238, replace(_BICUBIC, resize=238)),
    _torchvision("regnet_y_16gf", 384, replace(_BICUBIC, resize=384, crop=384)),
    _timm("mixer_b_16", "mixer_b16_224", 238, _HALVES),
    _timm("mixer_l_16", "mixer_l16_224", 238, _HALVES),
    _timm("deit_tiny", "deit_tiny_patch16_224", 256, replace(_BICUBIC, resize=248)),
    _lite("efficientnet_lite0"),
    *_cifar("cifar10"),
    *_cifar("cifar100"),
    *_openood(),
]
MODELS: dict[str, ModelEntry] = {entry.name: entry for entry in _ENTRIES}
