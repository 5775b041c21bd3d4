"""Which bound OptFS wants after which activation: the digits' ConvNet trained anew with each of four.

    python scripts/bounds_by_activation.py

Swish and its kin are barely negative, but often: the share of negative values decides which bound `optfs` takes, and
this shows whether that is the better one. Mean AUROC over the digits' OOD sets, in percent.
"""

from __future__ import annotations

import argparse

import numpy as np
import torch
import train_digits
from torch import nn

from oodshape import METHODS, Classifier, Features, auroc
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.networks.zoo.digits_nets import SmallNet, load_small_net

ACTIVATIONS = (nn.ReLU, nn.SiLU, nn.Hardswish, nn.GELU)
SHOWN = ("msp", "energy", "optfs-e", "optfs-f", "optfs")


def with_activation(net: nn.Module, kind: type[nn.Module]) -> None:
    """Put another activation in place of every ReLU."""
    for name, child in net.named_children():
        if isinstance(child, nn.ReLU):
            setattr(net, name, kind())
        else:
            with_activation(child, kind)


def main() -> None:
    """Train the four, one after the other, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    sets = load_digits_sets()
    print("activation accuracy negative signed " + " ".join(SHOWN))
    for kind in ACTIVATIONS:

        def made(name: str, *, pretrained: bool = True, kind: type[nn.Module] = kind) -> SmallNet:
            net = load_small_net(name, pretrained=pretrained)
            with_activation(net, kind)
            return net

        net = train_digits.train("convnet", sets["train"], arguments.epochs, made)
        seen = {name: Features.extract(Classifier(net), each, DIGITS, progress=False) for name, each in sets.items()}
        train, test = seen.pop("train"), seen.pop("test")
        negative = np.mean([float((chunk < 0).double().mean()) for _, chunk in train.chunks()])
        means = []
        for name in SHOWN:
            detector = METHODS[name].fit(train)
            known = detector.score(test)
            means.append(100 * np.mean([auroc(known, detector.score(strange)) for strange in seen.values()]))
        figures = " ".join(f"{mean:.1f}" for mean in means)
        reached = train_digits.accuracy(net, sets["test"])
        print(f"{kind.__name__} {reached:.3f} {negative:.3f} {train.stats.signed} {figures}", flush=True)


if __name__ == "__main__":
    main()
