"""The names of the zoo's networks with their family, ID set and number of classes; importable without torch."""

from __future__ import annotations

from typing import Literal, NamedTuple

Family = Literal["ConvNet", "transformer", "MLP"]


class Known(NamedTuple):
    """What is known of a network without building it."""

    family: Family
    id_set: str
    classes: int


_FAMILIES: dict[Family, str] = {
    "ConvNet": "digits-convnet resnet50 mobilenet_v2 regnet_y_16gf efficientnet_lite0 cifar10-densenet101 "
    "cifar100-densenet101 cifar10-resnet18 cifar100-resnet18 imagenet200-resnet18",
    "transformer": "digits-vit vit_b_16 vit_l_16 swin_t swin_s swin_b deit_tiny cifar10-vit_b_16 cifar100-vit_b_16",
    "MLP": "digits-mixer mixer_b_16 mixer_l_16 cifar10-mixer_nano cifar100-mixer_nano",
}
_CLASSES = {"digits": 8, "cifar10": 10, "cifar100": 100, "imagenet200": 200, "imagenet": 1000}


def _id_set(name: str) -> str:
    """The ID set, which the names carry unless it is ImageNet."""
    return name.partition("-")[0] if "-" in name else "imagenet"


KNOWN: dict[str, Known] = {
    name: Known(family, _id_set(name), _CLASSES[_id_set(name)])
    for family, names in _FAMILIES.items()
    for name in names.split()
}
