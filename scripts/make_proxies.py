"""Make the proxy sets of networks whose features lie in folders, through the network itself.

    python scripts/make_proxies.py --features FEATURES --data DATA --weights WEIGHTS --out PANELS

FEATURES holds a folder per network, named ID-SET_NETWORK as the networks of the zoo are (imagenet_deit_tiny). DATA
holds imagenet/train and cifar10, and WEIGHTS the files that `oodshape bench --weights` looks for. Writes
PANELS/NETWORK/scrambled.npz, synthetic_noise.npz and synthetic_constant.npz, which `auto_evidence.py --scrambled`
reads.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np

from oodshape import Classifier, ImageFolder
from oodshape.features.proxy import proxy_features
from oodshape.images.datasets.cifar_mnist_svhn import read_cifar
from oodshape.images.decode.preprocessing import Preprocessing
from oodshape.images.sources.image_set import ImageSet
from oodshape.networks.zoo import build, find_weights, model_entry, weights_needed
from oodshape.studies.load_networks import PROXIES, find_folders


def name_of(folder: str) -> str:
    """The zoo's name of the network that a folder is named after.

    >>> name_of("imagenet_deit_tiny"), name_of("cifar10_densenet101")
    ('deit_tiny', 'cifar10-densenet101')
    """
    id_set, _, name = folder.partition("_")
    return name if id_set == "imagenet" else f"{id_set}-{name}"


def images_of(id_set: str, data: Path) -> ImageSet:
    """The training images at hand."""
    return ImageFolder(data / "imagenet" / "train") if id_set == "imagenet" else read_cifar(data / id_set, train=True)


def main() -> None:
    """Write a proxy per network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("features", "data", "weights", "out"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    given = parser.parse_args()
    for folder in find_folders([given.features]):
        entry = model_entry(name_of(folder.name))
        weights = find_weights(entry.name, given.weights)
        if weights is None and entry.id_set != "digits":  # those come with the package
            raise SystemExit(f"{entry.name} {weights_needed(entry.name, given.weights)}")
        classifier = Classifier(build(entry.name, weights))
        # images at hand have their final size already
        preprocessing = Preprocessing(mean=entry.native.mean, std=entry.native.std)
        found = proxy_features(classifier, images_of(entry.id_set, given.data), preprocessing)
        target = given.out / folder.name
        target.mkdir(parents=True, exist_ok=True)
        for name, proxy in zip(PROXIES, found, strict=True):
            values = np.concatenate([raw.numpy() for _, raw in proxy.chunks()])
            np.savez(target / f"{name}.npz", features=values.astype(np.float16))


if __name__ == "__main__":
    main()
