"""Train weak networks for `auto_evidence.py`, with held-out classes, noise and constant images as OOD sets.

    python scripts/auto_networks.py --out runs                                # digits without 3, 5 and 8
    python scripts/auto_networks.py --out runs --data DATA                    # and CIFAR-10 without three classes
    python scripts/auto_networks.py --out runs --data DATA --classes c        # without three other classes
    python scripts/auto_networks.py --out fresh --data DATA --classes e       # other architectures, also --classes f

On CIFAR-10 a plain CNN, a VGG with a hidden layer, a ViT, a Mixer and a ConvMixer are trained for a few minutes on the
7 remaining classes; with other classes these are networks of other sizes or architectures, from another seed and for
other numbers of epochs. Each network becomes a folder of feature files in the layout of `oodshape study`, with its
scrambled images and ID images for calibration, and its weights, for `auto_guards.py`. Networks whose folder
exists are skipped.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from make_digits import scanned_digits
from torch import Tensor, nn
from torch.nn import functional
from train_digits import train as train_small
from train_mixer_nano import augmented, normalized, tensors

from oodshape import Classifier, Features, ImageFolder
from oodshape.features.proxy import proxy_features
from oodshape.images.datasets.cifar_mnist_svhn import read_cifar
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.datasets.synthetic import draw_constants, draw_noise
from oodshape.images.decode.preprocessing import CIFAR, DIGITS, Preprocessing
from oodshape.images.sources.image_set import ArraySet, ImageSet, limit_images
from oodshape.networks.zoo.digits_nets import SMALL_NETS
from oodshape.studies.load_networks import PROXIES

# CIFAR-10 without airplane, cat, truck; automobile, bird, dog; deer, frog, ship; airplane, deer, horse;
# automobile, cat, ship; airplane, dog, truck; bird, frog, truck; bird, deer, ship; automobile, deer, truck;
# airplane, frog, horse
LEFT_OUT = {"a": (0, 3, 9), "b": (1, 2, 5), "c": (4, 6, 8), "d": (0, 4, 7), "e": (1, 3, 8), "f": (0, 5, 9)}
LEFT_OUT |= {"g": (2, 6, 9), "h": (2, 4, 8), "i": (1, 4, 9), "j": (0, 6, 7)}
DIGITS_LEFT_OUT = {"a": (3, 5, 8), "d": (1, 4, 7), "e": (0, 2, 6), "g": (1, 5, 9), "h": (3, 6, 7), "i": (2, 4, 9)}
DIGITS_LEFT_OUT |= {"j": (0, 7, 8)}
MORE = 3000  # images of CIFAR-10's test file that are trained on too, because the training file at hand is small
CALIBRATION = 500  # ID images for calibration
MOST = 500  # images of an OOD set
EPOCHS, BATCH, RATE = 6, 64, 2e-3


class TokenMixing(nn.Module):
    """A layer over tokens, then an MLP over channels, each after a LayerNorm and with a residual: [N, T, width]."""

    def __init__(self, width: int, mix: nn.Module) -> None:
        """`mix` maps [N, T, width] to the same shape."""
        super().__init__()
        self.before, self.mix, self.norm = nn.LayerNorm(width), mix, nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Mix over positions, then over channels."""
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
    """An MLP over positions."""

    def __init__(self, positions: int) -> None:
        """Twice as wide inside."""
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(positions, 2 * positions), nn.GELU(), nn.Linear(2 * positions, positions))

    def forward(self, tokens: Tensor) -> Tensor:
        """[N, T, width] -> [N, T, width]."""
        made: Tensor = self.mlp(tokens.transpose(1, 2)).transpose(1, 2)
        return made


class Patches(nn.Module):
    """Patches of 4 x 4 pixels as tokens, each with a learned position: [N, 3, 32, 32] -> [N, 64, width]."""

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


class Residual(nn.Module):
    """A block plus its input."""

    def __init__(self, *layers: nn.Module) -> None:
        """Layers that keep the shape."""
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, maps: Tensor) -> Tensor:
        """[N, width, H, W] -> the same shape."""
        made: Tensor = maps + self.layers(maps)
        return made


class Dense(Residual):
    """A block next to its input."""

    def forward(self, maps: Tensor) -> Tensor:
        """[N, width, H, W] -> [N, width + growth, H, W]."""
        return torch.cat([maps, self.layers(maps)], dim=1)


def plain(classes: int, width: int = 64) -> nn.Module:
    """Three convolutions without normalisation; `width` pooled features behind a ReLU."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, width // 4), (width // 4, width // 2), (width // 2, width)):
        layers += [nn.Conv2d(inputs, outputs, 3, 1, 1), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def vgg(classes: int, width: int = 256) -> nn.Module:
    """Three convolutions with batch normalisation and a hidden layer; `width` features behind a ReLU."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 16), (16, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, width), nn.ReLU(), nn.Linear(width, classes))


def resnet(classes: int) -> nn.Module:
    """Two residual blocks; 64 pooled features behind a ReLU."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64)):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
        layers.append(Residual(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs)))
        layers.append(nn.ReLU())
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, classes))


def convmixer(classes: int, width: int = 64, depth: int = 3) -> nn.Module:
    """64 pooled features behind a GELU and a batch normalisation: both signs."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4), nn.GELU(), nn.BatchNorm2d(width)]
    for _ in range(depth):
        layers.append(Residual(nn.Conv2d(width, width, 5, 1, 2, groups=width), nn.GELU(), nn.BatchNorm2d(width)))
        layers += [nn.Conv2d(width, width, 1), nn.GELU(), nn.BatchNorm2d(width)]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def densenet(classes: int, width: int = 32, growth: int = 16, depth: int = 4) -> nn.Module:
    """Two dense blocks; pooled features behind a ReLU."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 2, 1)]
    for block in range(2):
        for _ in range(depth):
            layers.append(Dense(nn.BatchNorm2d(width), nn.ReLU(), nn.Conv2d(width, growth, 3, 1, 1, bias=False)))
            width += growth
        layers += [nn.BatchNorm2d(width), nn.ReLU()]
        if block == 0:
            layers += [nn.Conv2d(width, width // 2, 1), nn.AvgPool2d(2)]
            width //= 2
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes))


def convnext(classes: int, width: int = 64, depth: int = 3) -> nn.Module:
    """Depthwise convolutions of 7 x 7 and wide 1 x 1 ones; features of both signs behind a LayerNorm."""
    layers: list[nn.Module] = [nn.Conv2d(3, width, 4, 4)]
    for _ in range(depth):
        inside = [
            nn.Conv2d(width, width, 7, 1, 3, groups=width),
            nn.GroupNorm(1, width),
            nn.Conv2d(width, 4 * width, 1),
        ]
        layers.append(Residual(*inside, nn.GELU(), nn.Conv2d(4 * width, width, 1)))
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(width), nn.Linear(width, classes))


def depthwise(classes: int) -> nn.Module:
    """Separable convolutions with ReLU6; 128 pooled features between 0 and 6."""
    layers: list[nn.Module] = [nn.Conv2d(3, 32, 3, 2, 1, bias=False), nn.BatchNorm2d(32), nn.ReLU6()]
    for inputs, outputs, stride in ((32, 64, 1), (64, 96, 2), (96, 128, 1)):
        layers += [
            nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False),
            nn.BatchNorm2d(inputs),
            nn.ReLU6(),
        ]
        layers += [nn.Conv2d(inputs, outputs, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU6()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, classes))


def of_tokens(mix: Callable[[], nn.Module], classes: int, width: int = 48, depth: int = 3) -> nn.Module:
    """48 features of both signs, behind a LayerNorm."""
    blocks = [TokenMixing(width, mix()) for _ in range(depth)]
    return nn.Sequential(Patches(width), *blocks, Mean(), nn.LayerNorm(width), nn.Linear(width, classes))


NETS: dict[str, Callable[[int], nn.Module]] = {
    "plain": plain,
    "vgg": vgg,
    "vit": partial(of_tokens, partial(Attention, 48, 4)),
    "mixer": partial(of_tokens, partial(OverTokens, 64)),
    "convmixer": convmixer,
}
MORE_NETS: dict[str, Callable[[int], nn.Module]] = {
    "plain": partial(plain, width=96),
    "vgg": partial(vgg, width=192),
    "vit": partial(of_tokens, partial(Attention, 56, 4), width=56, depth=4),
    "mixer": partial(of_tokens, partial(OverTokens, 64), width=72, depth=3),
    "convmixer": partial(convmixer, width=80, depth=4),
    "densenet": densenet,
    "convnext": convnext,
    "depthwise": depthwise,
}
OTHERS: dict[str, Callable[[int], nn.Module]] = {
    "resnet": resnet,
    "vgg": partial(vgg, width=128),
    "vit": partial(of_tokens, partial(Attention, 64, 2), width=64, depth=2),
    "mixer": partial(of_tokens, partial(OverTokens, 64), width=64, depth=2),
    "convmixer": partial(convmixer, width=96, depth=2),
}


class ClassToken(nn.Module):
    """A learned token in front of the others; afterwards only it is kept."""

    def __init__(self, width: int, *blocks: nn.Module) -> None:
        """Blocks over tokens."""
        super().__init__()
        self.token, self.blocks = nn.Parameter(0.02 * torch.randn(1, 1, width)), nn.Sequential(*blocks)

    def forward(self, tokens: Tensor) -> Tensor:
        """[N, T, width] -> [N, width]."""
        made: Tensor = self.blocks(torch.cat([self.token.expand(len(tokens), -1, -1), tokens], dim=1))[:, 0]
        return made


def stages(
    classes: int,
    widths: tuple[int, ...],
    act: Callable[[], nn.Module] = nn.ReLU,
    *,
    norm: bool = False,
    residual: bool = False,
    last: Callable[[int], nn.Module] = nn.Identity,
    channels: int = 3,
) -> nn.Module:
    """A convolution of stride 2 per width, with or without normalisation and a residual block; pooled features."""
    layers: list[nn.Module] = []
    normalise = nn.BatchNorm2d if norm else nn.Identity
    for inputs, outputs in zip((channels, *widths), widths, strict=False):
        layers += [nn.Conv2d(inputs, outputs, 3, 2, 1), normalise(outputs), act()]
        if residual:
            layers += [Residual(nn.Conv2d(outputs, outputs, 3, 1, 1), normalise(outputs)), act()]
    width = widths[-1]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), last(width), nn.Linear(width, classes))


def of_pixels(
    classes: int,
    inputs: int,
    widths: tuple[int, ...],
    act: Callable[[], nn.Module] = nn.ReLU,
    *,
    norm: bool = False,
) -> nn.Module:
    """An MLP on the pixels, with features behind an activation."""
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in zip((inputs, *widths), widths, strict=False):
        layers += [nn.Linear(before, after), nn.BatchNorm1d(after) if norm else nn.Identity(), act()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], classes))


def vit_cls(classes: int, width: int = 60, depth: int = 3) -> nn.Module:
    """A ViT whose features are the class token behind a LayerNorm."""
    blocks = ClassToken(width, *(TokenMixing(width, Attention(width, 3)) for _ in range(depth)))
    return nn.Sequential(Patches(width), blocks, nn.LayerNorm(width), nn.Linear(width, classes))


FRESH_E: dict[str, Callable[[int], nn.Module]] = {
    "tanh": partial(stages, widths=(20, 40, 80), act=nn.Tanh),
    "gelu": partial(stages, widths=(28, 56, 112), act=nn.GELU),
    "hidden": partial(vgg, width=320),
    "resnet_bn": partial(stages, widths=(24, 48, 96), norm=True, residual=True),
    "resnet_bare": partial(stages, widths=(24, 48, 72), residual=True),
    "layernorm": partial(stages, widths=(32, 64, 88), last=nn.LayerNorm),
}
FRESH_F: dict[str, Callable[[int], nn.Module]] = {
    "vit_cls": vit_cls,
    "mixer": partial(of_tokens, partial(OverTokens, 64), width=40, depth=4),
    "convmixer": partial(convmixer, width=72, depth=2),
    "mlp": partial(of_pixels, inputs=3072, widths=(384, 128)),
    "narrow": partial(stages, widths=(32, 48, 20), norm=True),
}
PIXELS, SMALL_PIXELS = partial(of_pixels, inputs=3072), partial(of_pixels, inputs=256)
FLAT: dict[str, Callable[[int], nn.Module]] = {
    "mlp": partial(PIXELS, widths=(512, 96)),
    "mlp_tanh": partial(PIXELS, widths=(256, 64), act=nn.Tanh),
    "mlp_bn": partial(PIXELS, widths=(384, 160), norm=True),
    "narrow": partial(stages, widths=(24, 32, 16), norm=True),
}
LAST: dict[str, Callable[[int], nn.Module]] = {
    "mlp_gelu": partial(PIXELS, widths=(448, 112), act=nn.GELU),
    "mlp_deep": partial(PIXELS, widths=(320, 192, 72)),
    "narrow": partial(stages, widths=(28, 40, 24), norm=True),
    "vgg": partial(vgg, width=288),
    "vit": partial(of_tokens, partial(Attention, 52, 2), width=52, depth=3),
    "resnet": partial(stages, widths=(20, 40, 64), norm=True, residual=True),
}
NEWEST: dict[str, Callable[[int], nn.Module]] = {
    "plain": partial(plain, width=80),
    "vgg": partial(vgg, width=160),
    "vit": partial(of_tokens, partial(Attention, 44, 4), width=44, depth=3),
    "mixer": partial(of_tokens, partial(OverTokens, 64), width=56, depth=2),
    "convmixer": partial(convmixer, width=56, depth=3),
    "mlp_elu": partial(PIXELS, widths=(416, 104), act=nn.ELU),
    "narrow": partial(stages, widths=(24, 36, 12), norm=True),
}
FINAL: dict[str, Callable[[int], nn.Module]] = {
    "convmixer": partial(convmixer, width=48, depth=3),
    "vit": partial(of_tokens, partial(Attention, 40, 2), width=40, depth=3),
    "mixer": partial(of_tokens, partial(OverTokens, 64), width=44, depth=3),
    "plain": partial(plain, width=72),
    "vgg": partial(vgg, width=224),
    "mlp_tanh": partial(PIXELS, widths=(320, 80), act=nn.Tanh),
    "narrow": partial(stages, widths=(20, 32, 10), norm=True),
}
ONE_CHANNEL = partial(stages, channels=1)
ON_DIGITS: dict[str, dict[str, Callable[[int], nn.Module]]] = {
    "e": {
        "mlp": partial(SMALL_PIXELS, widths=(160, 40)),
        "narrow": partial(ONE_CHANNEL, widths=(16, 24, 12), norm=True),
    },
    "g": {
        "mlp": partial(SMALL_PIXELS, widths=(96, 24)),
        "narrow": partial(ONE_CHANNEL, widths=(16, 20, 10), norm=True),
        "bare": partial(ONE_CHANNEL, widths=(12, 16, 8)),
    },
    "h": {
        "mlp": partial(SMALL_PIXELS, widths=(128, 32)),
        "narrow": partial(ONE_CHANNEL, widths=(20, 28, 14), norm=True),
        "bare": partial(ONE_CHANNEL, widths=(16, 32, 18)),
    },
    "i": {
        "mlp": partial(SMALL_PIXELS, widths=(144, 36), act=nn.SiLU),
        "narrow": partial(ONE_CHANNEL, widths=(16, 24, 16), norm=True),
        "bare": partial(ONE_CHANNEL, widths=(12, 24, 12)),
    },
    "j": {
        "mlp": partial(SMALL_PIXELS, widths=(112, 28), act=nn.Softsign),
        "narrow": partial(ONE_CHANNEL, widths=(16, 24, 9), norm=True),
        "bare": partial(ONE_CHANNEL, widths=(14, 20, 10)),
    },
}

TRAINED = {"c": (OTHERS, 1), "d": (MORE_NETS, 20), "e": (FRESH_E, 31), "f": (FRESH_F, 47)}  # networks, seed
TRAINED |= {"g": (FLAT, 53), "h": (LAST, 61), "i": (NEWEST, 71), "j": (FINAL, 83)}


def trained(make: Callable[[], nn.Module], data: ArraySet, epochs: int, seed: int) -> nn.Module:
    """A network after AdamW with a one-cycle schedule."""
    torch.manual_seed(seed)
    net = make().train()
    images, labels = tensors(data)
    steps = epochs * (len(images) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), RATE, weight_decay=0.05)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, RATE, total_steps=steps, pct_start=0.1)
    for _ in range(epochs):
        for rows in torch.randperm(len(images))[: len(images) // BATCH * BATCH].view(-1, BATCH):
            loss = functional.cross_entropy(net(normalized(augmented(images[rows], 0))), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return net


def without(images: np.ndarray, labels: np.ndarray, left_out: tuple[int, ...]) -> tuple[ArraySet, ArraySet]:
    """(images of the classes that stay, renumbered; images of the others)."""
    stays = ~np.isin(labels, left_out)
    kept = np.unique(labels[stays])
    inside = ArraySet("inside", images[stays], np.searchsorted(kept, labels[stays]))
    return inside, ArraySet("leftout", images[~stays])


def rows_of(data: ArraySet, name: str, rows: slice) -> ArraySet:
    """Some of the images."""
    return ArraySet(name, data.images[rows], data.labels[rows])


def synthetic_sets(side: int, channels: int) -> dict[str, ImageSet]:
    """Noise and constant images of the size of the ID images."""
    made = {"noise": draw_noise(side, side, channels), "constant": draw_constants(side, side, channels)}
    return {name: ArraySet(name, images[..., 0] if channels == 1 else images) for name, images in made.items()}


def small_sets(left_out: tuple[int, ...]) -> dict[str, ImageSet]:
    """Digits without some classes."""
    inside, leftout = without(*scanned_digits(), left_out)
    parts = {"train": slice(0, 600), "calibration": slice(600, 900), "test": slice(900, None)}
    sets: dict[str, ImageSet] = {name: rows_of(inside, name, rows) for name, rows in parts.items()}
    sets |= {"leftout": leftout, **synthetic_sets(inside.images.shape[1], 1)}
    return sets | {
        name: images for name, images in load_digits_sets().items() if name in ("letters", "photos", "textures")
    }


def cifar_sets(data: Path, left_out: tuple[int, ...]) -> dict[str, ImageSet]:
    """CIFAR-10 without some classes."""
    train, test = (read_cifar(data / "cifar10", train=part) for part in (True, False))
    more = [np.concatenate([a, b[:MORE]]) for a, b in ((train.images, test.images), (train.labels, test.labels))]
    inside, leftout = without(more[0], more[1], left_out)
    rest, _ = without(test.images[MORE:], test.labels[MORE:], left_out)
    sets: dict[str, ImageSet] = {
        "train": inside,
        "calibration": rows_of(rest, "calibration", slice(0, CALIBRATION)),
        "test": rows_of(rest, "test", slice(CALIBRATION, None)),
        "leftout": limit_images(leftout, MOST),
        **synthetic_sets(32, 3),
    }
    for name in ("svhn", "tinyimagenet", "texture32", "places32"):
        sets[name] = limit_images(ImageFolder(data / name / "test"), MOST)
    return sets


def write(
    folder: Path, make: Callable[[], nn.Module], preprocessing: Preprocessing, sets: Mapping[str, ImageSet]
) -> None:
    """Write the features of every set and of the scrambled images, then the head, which marks the folder complete."""
    if (folder / "head.npz").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    net = make().eval()
    classifier = Classifier(net)
    made = {name: Features.extract(classifier, images, preprocessing) for name, images in sets.items()}
    made |= zip(PROXIES, proxy_features(classifier, sets["train"], preprocessing), strict=True)
    for name, features in made.items():
        values = np.concatenate([raw.numpy() for _, raw in features.chunks()])
        np.savez(folder / f"{name}.npz", features=values, labels=features.labels)
    torch.save(net.state_dict(), folder / "net.pt")
    np.savez(folder / "head.npz", weight=classifier.head.weight, bias=classifier.head.bias)
    print(f"{folder}: accuracy {made['test'].accuracy:.3f}", flush=True)


def main() -> None:
    """Train and write the networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path, help="a folder with cifar10 and the OOD sets of 32 x 32 pixels")
    parser.add_argument("--classes", choices=LEFT_OUT, default="a", help="which classes of CIFAR-10 are left out")
    parser.add_argument("--epochs", type=int, default=60, help="of the networks on digits")
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.data is not None:
        sets, left_out = cifar_sets(given.data, LEFT_OUT[given.classes]), LEFT_OUT[given.classes]
        train = sets["train"]
        assert isinstance(train, ArraySet)
        nets, seed = TRAINED.get(given.classes, (NETS, 0))
        for place, (name, make) in enumerate(nets.items()):
            # networks of different accuracy: 4 to 11 epochs
            epochs = 4 + place if given.classes in "defghij" else EPOCHS
            made = partial(trained, partial(make, 10 - len(left_out)), train, epochs, seed)
            write(given.out / f"cifar7{given.classes}_{name}", made, CIFAR, sets)
    if given.classes in DIGITS_LEFT_OUT:
        sets = small_sets(DIGITS_LEFT_OUT[given.classes])
        train = sets["train"]
        assert isinstance(train, ArraySet)
        end = "" if given.classes == "a" else f"_{given.classes}"
        own = ON_DIGITS.get(given.classes, {})
        for name in own or SMALL_NETS:
            made = partial(train_small, name, train, given.epochs)
            if own:
                made = partial(made, made=lambda name, pretrained: own[name](7))
            write(given.out / f"digits_without{end}_{name}", made, DIGITS, sets)


if __name__ == "__main__":
    main()
