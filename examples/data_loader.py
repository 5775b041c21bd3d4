"""A DataLoader whose tensors the network takes as they are: five lines from a trained network to verdicts."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

from oodshape import Guard
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.networks.zoo import build


def loader(name: str, first: int, last: int) -> DataLoader[Any]:
    """What you have already: batches (images, labels), prepared as in training."""
    digits = load_digits_sets()[name]
    images, labels = DIGITS.batch(digits.images[first:last]), torch.from_numpy(digits.labels[first:last].copy())
    return DataLoader(TensorDataset(images, labels), batch_size=32, shuffle=name == "train")


def main() -> None:
    """The network is one that comes with the package."""
    net = build("digits-convnet")
    train_loader, val_loader, new_loader = loader("train", 0, 300), loader("test", 0, 100), loader("photos", 0, 40)

    guard = Guard.fit(net, images=train_loader, calibrate=val_loader, prepared=True)
    live = guard.attach(net)
    for images, _ in new_loader:
        print(live.tensors(images).accepted.tolist())


if __name__ == "__main__":
    main()
