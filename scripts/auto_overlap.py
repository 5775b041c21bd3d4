"""Measure how far features separate noise from ID images at all: the noise filter of `auto`, next to a trained MLP.

    python scripts/auto_overlap.py --networks FOLDER [FOLDER ...] --data DATA

FOLDER is one network of `auto_networks.py`. The filter is fitted as in `auto` (at most 1,200 ID images, 640 of noise);
the MLP, an upper reference, on all training images and eight times that noise. Printed is the percentage of 1,024 other
noise images that each accepts where it rejects 2, 3 and 5 % of the ID test images: the filter may reject at most alpha.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from auto_guards import network
from torch import Tensor, nn
from torch.nn import functional

from oodshape import Classifier, Features
from oodshape.images import identity
from oodshape.images.datasets.synthetic import draw_noise
from oodshape.images.sources.image_set import ArraySet
from oodshape.methods.auto import CONTRASTED, Auto, contrast_images
from oodshape.methods.registry import find_method
from oodshape.methods.scores.mahalanobis import Contrast
from oodshape.methods.training_set import Training

REJECTED = (0.02, 0.03, 0.05)
EPOCHS, BATCH, RATE, HIDDEN = 30, 128, 3e-3, 64


def rows(features: Features) -> Tensor:
    """[N, M] float32."""
    return torch.cat([raw.float() for _, raw in features.chunks()])


def train_mlp(inside: Tensor, noise: Tensor) -> Callable[[Tensor], Tensor]:
    """Scores of an MLP that separates ID images from noise; both kinds count the same."""
    torch.manual_seed(0)
    center, scale = inside.mean(dim=0), inside.std(dim=0) + 1e-9
    images = (torch.cat([inside, noise]) - center) / scale
    wanted = (torch.arange(len(images)) < len(inside)).float()
    weights = torch.where(wanted > 0, 1 / len(inside), 1 / len(noise)) * len(images) / 2
    layers = [nn.Linear(images.shape[1], HIDDEN), nn.ReLU(), nn.Linear(HIDDEN, HIDDEN), nn.ReLU()]
    net = nn.Sequential(*layers, nn.Linear(HIDDEN, 1), nn.Flatten(0))
    optimizer = torch.optim.AdamW(net.parameters(), RATE)
    for _ in range(EPOCHS):
        for some in torch.randperm(len(images)).split(BATCH):
            loss = functional.binary_cross_entropy_with_logits(net(images[some]), wanted[some], weights[some])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
    return torch.no_grad()(lambda found: net((found - center) / scale))


def separate(folder: Path, data: Path) -> dict[str, list[float]]:
    """The noise that the filter and the MLP accept, in percent."""
    net, sets, preprocessing = network(folder, data)
    classifier = Classifier(net)

    def noise(seeds: range, *, weak: bool) -> Features:
        side = np.asarray(sets["train"][0]).shape[0]
        pixels = np.concatenate([draw_noise(side, side, preprocessing.channels, seed, weak=weak) for seed in seeds])
        return Features.extract(
            classifier, ArraySet("noise", pixels[..., 0] if pixels.shape[-1] == 1 else pixels), preprocessing
        )

    train, held, test = (
        Features.extract(classifier, sets[name], preprocessing) for name in ("train", "calibration", "test")
    )
    kept = contrast_images(Training.of(train, held_out=held), Auto().share)
    assert kept is not None
    some = kept[identity.smallest(kept.identities, CONTRASTED, 0, "contrast")]
    base = find_method("mds").unlabelled().fit(train)
    contrast, _ = Contrast.of_images(base.scorer, noise(range(1, 2), weak=True), some)  # type: ignore[arg-type]
    unseen = noise(range(101, 109), weak=False)
    mlp = train_mlp(rows(train), rows(noise(range(11, 19), weak=True)))
    detector = replace(base, scorer=contrast)
    scores = {
        "filter": (detector.score(test), detector.score(unseen)),
        "MLP": (mlp(rows(test)), mlp(rows(unseen))),
    }
    return {
        name: [100 * float((outside >= inside.quantile(share)).double().mean()) for share in REJECTED]
        for name, (inside, outside) in scores.items()
    }


def main() -> None:
    """Print a row per network and score."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=Path, nargs="+", required=True)
    parser.add_argument("--data", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    print(f"| network | score | {' | '.join(f'{100 * share:g} % rejected' for share in REJECTED)} |")
    print("| --- | --- | ---: | ---: | ---: |")
    for folder in given.networks:
        for name, accepted in separate(folder, given.data).items():
            print(f"| {folder.name} | {name} | {' | '.join(f'{value:.1f}' for value in accepted)} |", flush=True)


if __name__ == "__main__":
    main()
