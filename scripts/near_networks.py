"""Networks with real near OOD data for `auto_evidence.py`: small ones, trained on some classes only.

    python scripts/near_networks.py --out runs                  # digits without 3, 5 and 8
    python scripts/near_networks.py --out runs --data DATA      # and CIFAR-10, two choices of classes left out

The images of the classes left out are the OOD set `leftout`. On CIFAR-10 a ResNet, a network of swish, a ConvNeXt, a
ViT and a Mixer are trained on the images at hand, the ResNet a second time until it knows them by heart. Each network
becomes a folder in the layout of `oodshape study`, with its panel and with ID images set aside (`calibration`); one
that is there already is left as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from auto_networks import MOST, Block, write
from torch import Tensor, nn
from torch.nn import functional
from train_digits import train as train_small
from train_mixer_nano import augmented, normalized, tensors

from oodshape import ImageFolder
from oodshape.images.datasets.cifar_mnist_svhn import cifar
from oodshape.images.datasets.digits import _scanned_digits, digits_sets
from oodshape.images.decode.preprocessing import CIFAR, DIGITS
from oodshape.images.sources.image_set import ArraySet, ImageSet, limited
from oodshape.networks.zoo.digits_nets import SMALL_NETS

LEFT_OUT = {"a": (0, 3, 9), "b": (1, 2, 5)}  # classes of CIFAR-10: airplane, cat, truck; automobile, bird, dog
DIGITS_LEFT_OUT = (3, 5, 8)
MORE = 3000  # images of CIFAR-10's test file that are trained on too: the training file at hand is small
HELD_OUT = 500  # ID images set aside for a threshold
EPOCHS, LONG = 10, 16
BATCH, RATE = 64, 2e-3


class Bottleneck(nn.Module):
    """Widen, convolve each channel, narrow, all with swish, added to the input where shapes agree."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """Four times as wide inside."""
        super().__init__()
        wide = 4 * inputs
        self.layers = nn.Sequential(
            *(nn.Conv2d(inputs, wide, 1, bias=False), nn.BatchNorm2d(wide), nn.SiLU()),
            *(nn.Conv2d(wide, wide, 3, stride, 1, groups=wide, bias=False), nn.BatchNorm2d(wide), nn.SiLU()),
            *(nn.Conv2d(wide, outputs, 1, bias=False), nn.BatchNorm2d(outputs)),
        )
        self.same = stride == 1 and inputs == outputs

    def forward(self, maps: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, outputs, H', W']."""
        made: Tensor = self.layers(maps)
        return made + maps if self.same else made


class Mixing(nn.Module):
    """A way of mixing tokens, then an MLP over channels; LayerNorm before each, both added: [N, T, width]."""

    def __init__(self, width: int, mix: nn.Module) -> None:
        """`mix` takes and gives [N, T, width]."""
        super().__init__()
        self.before, self.mix, self.norm = nn.LayerNorm(width), mix, nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Mixed over places, then over channels."""
        tokens = tokens + self.mix(self.before(tokens))
        made: Tensor = tokens + self.mlp(self.norm(tokens))
        return made


class Attention(nn.Module):
    """Self-attention."""

    def __init__(self, width: int, heads: int) -> None:
        """Query, key and value in one layer."""
        super().__init__()
        self.heads, self.qkv, self.out = heads, nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, tokens: Tensor) -> Tensor:
        """[N, T, width] -> [N, T, width]."""
        query, key, value = self.qkv(tokens).unflatten(2, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(query, key, value)
        made: Tensor = self.out(mixed.transpose(1, 2).flatten(2))
        return made


class OverTokens(nn.Module):
    """An MLP over places."""

    def __init__(self, places: int) -> None:
        """Twice as wide inside."""
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(places, 2 * places), nn.GELU(), nn.Linear(2 * places, places))

    def forward(self, tokens: Tensor) -> Tensor:
        """[N, T, width] -> [N, T, width]."""
        made: Tensor = self.mlp(tokens.transpose(1, 2)).transpose(1, 2)
        return made


class Neighbours(nn.Module):
    """A convolution of each channel over 5 x 5 places, as in ConvNeXt."""

    def __init__(self, width: int, side: int) -> None:
        """Places lie in a square of the given side."""
        super().__init__()
        self.side, self.convolution = side, nn.Conv2d(width, width, 5, 1, 2, groups=width)

    def forward(self, tokens: Tensor) -> Tensor:
        """[N, T, width] -> [N, T, width]."""
        maps = tokens.transpose(1, 2).unflatten(2, (self.side, self.side))
        made: Tensor = self.convolution(maps).flatten(2).transpose(1, 2)
        return made


class Patches(nn.Module):
    """Patches of 4 x 4 pixels as tokens, with a learned position each: [N, 3, 32, 32] -> [N, 64, width]."""

    def __init__(self, width: int) -> None:
        """A convolution cuts the patches."""
        super().__init__()
        self.cut, self.positions = nn.Conv2d(3, width, 4, 4), nn.Parameter(0.02 * torch.randn(1, 64, width))

    def forward(self, images: Tensor) -> Tensor:
        """The tokens."""
        made: Tensor = self.cut(images).flatten(2).transpose(1, 2) + self.positions
        return made


class Mean(nn.Module):
    """[N, T, width] -> [N, width], the mean over tokens."""

    def forward(self, tokens: Tensor) -> Tensor:
        """The mean."""
        return tokens.mean(dim=1)


def resnet(classes: int) -> nn.Module:
    """96 features behind a ReLU."""
    stem = nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.ReLU()
    blocks = Block(24, 24, 1), Block(24, 48, 2), Block(48, 96, 2)
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, classes))


def swish(classes: int) -> nn.Module:
    """128 features behind a swish: a mean over places that is barely negative."""
    stem = nn.Conv2d(3, 24, 3, 2, 1, bias=False), nn.BatchNorm2d(24), nn.SiLU()
    blocks = Bottleneck(24, 24, 1), Bottleneck(24, 40, 2), Bottleneck(40, 64, 2)
    last = nn.Conv2d(64, 128, 1, bias=False), nn.BatchNorm2d(128), nn.SiLU()
    return nn.Sequential(*stem, *blocks, *last, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


def of_tokens(mix: Callable[[], nn.Module], classes: int, width: int = 64, depth: int = 4) -> nn.Module:
    """64 features of both signs, behind a LayerNorm."""
    blocks = [Mixing(width, mix()) for _ in range(depth)]
    return nn.Sequential(Patches(width), *blocks, Mean(), nn.LayerNorm(width), nn.Linear(width, classes))


NETS: dict[str, Callable[[int], nn.Module]] = {
    "resnet": resnet,
    "swish": swish,
    "convnext": partial(of_tokens, partial(Neighbours, 64, 8)),
    "vit": partial(of_tokens, partial(Attention, 64, 4)),
    "mixer": partial(of_tokens, partial(OverTokens, 64)),
}


def trained(make: Callable[[], nn.Module], data: ArraySet, epochs: int, *, augment: bool = True) -> nn.Module:
    """A network after AdamW with a cosine schedule."""
    torch.manual_seed(0)
    net = make().train()
    images, labels = tensors(data)
    steps = epochs * (len(images) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    for _ in range(epochs):
        for rows in torch.randperm(len(images))[: len(images) // BATCH * BATCH].view(-1, BATCH):
            batch = augmented(images[rows], 0) if augment else images[rows]
            loss = functional.cross_entropy(net(normalized(batch)), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return net


def without(images: np.ndarray, labels: np.ndarray, left_out: tuple[int, ...]) -> tuple[ArraySet, ArraySet]:
    """(images of the classes that stay, numbered anew; those left out)."""
    stays = ~np.isin(labels, left_out)
    kept = np.unique(labels[stays])
    inside = ArraySet("inside", images[stays], np.searchsorted(kept, labels[stays]))
    return inside, ArraySet("leftout", images[~stays])


def rows_of(data: ArraySet, name: str, rows: slice) -> ArraySet:
    """Some of the images."""
    return ArraySet(name, data.images[rows], data.labels[rows])


def small_sets() -> dict[str, ImageSet]:
    """Digits without some classes."""
    inside, leftout = without(*_scanned_digits(), DIGITS_LEFT_OUT)
    parts = {"train": slice(0, 700), "calibration": slice(700, 900), "test": slice(900, None)}
    sets: dict[str, ImageSet] = {name: rows_of(inside, name, rows) for name, rows in parts.items()}
    sets["leftout"] = leftout
    return sets | {name: images for name, images in digits_sets().items() if name in ("letters", "photos", "textures")}


def cifar_sets(data: Path, left_out: tuple[int, ...]) -> dict[str, ImageSet]:
    """CIFAR-10 without some classes."""
    train, test = (cifar(data / "cifar10", train=part) for part in (True, False))
    more = [np.concatenate([a, b[:MORE]]) for a, b in ((train.images, test.images), (train.labels, test.labels))]
    inside, leftout = without(more[0], more[1], left_out)
    rest, _ = without(test.images[MORE:], test.labels[MORE:], left_out)
    sets: dict[str, ImageSet] = {
        "train": inside,
        "calibration": rows_of(rest, "calibration", slice(0, HELD_OUT)),
        "test": rows_of(rest, "test", slice(HELD_OUT, None)),
        "leftout": limited(leftout, MOST),
    }
    for name in ("svhn", "tinyimagenet", "texture32", "places32"):
        sets[name] = limited(ImageFolder(data / name / "test"), MOST)
    return sets


def main() -> None:
    """Train and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--epochs", type=int, default=60, help="of the small networks, on digits")
    given = parser.parse_args()
    torch.set_num_threads(1)
    sets = small_sets()
    train = sets["train"]
    assert isinstance(train, ArraySet)
    for name in SMALL_NETS:
        write(given.out / f"digits_without_{name}", partial(train_small, name, train, given.epochs), DIGITS, sets)
    for letter, left_out in LEFT_OUT.items() if given.data is not None else ():
        sets = cifar_sets(given.data, left_out)
        train = sets["train"]
        assert isinstance(train, ArraySet)
        for name, make in NETS.items():
            made = partial(trained, partial(make, 10 - len(left_out)), train, EPOCHS)
            write(given.out / f"cifar7{letter}_{name}", made, CIFAR, sets)
        by_heart = partial(trained, partial(resnet, 10 - len(left_out)), train, LONG, augment=False)
        write(given.out / f"cifar7{letter}_by_heart", by_heart, CIFAR, sets)


if __name__ == "__main__":
    main()
