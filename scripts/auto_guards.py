"""Fit a guard to each network of `auto_networks.py` as the Python guide does, and count what it accepts.

    python scripts/auto_guards.py --networks FOLDER --data DATA [--store NAME]

Each network is fitted twice, on images and on prepared tensors, with its calibration images and alpha = 5 %. Then ID
images that were not used, noise, constant images and others without content are scored. Rates in percent, the larger
of the two ways except for ID images.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
import torch
from auto_evidence import STORED
from auto_networks import DIGITS_LEFT_OUT, LEFT_OUT, ON_DIGITS, TRAINED, cifar_sets, small_sets
from numpy.typing import NDArray
from torch import nn

from oodshape import Guard
from oodshape.core.files import replacing
from oodshape.images.datasets.synthetic import draw_pixels
from oodshape.images.decode.preprocessing import CIFAR, DIGITS, Preprocessing
from oodshape.images.sources.image_set import ArraySet, ImageSet

COUNT, SEED = 200, 7  # images of a kind: other seeds than those that `fit` draws
Images = NDArray[np.uint8]


def made_images(side: int, channels: int) -> dict[str, Images]:
    """[200, H, W, C] of each kind."""
    rng, shape = np.random.default_rng(SEED), (COUNT, side, side, channels)
    colours = rng.integers(0, 256, (2, COUNT, 1, 1, channels))
    colours[0, :2] = np.array([0, 255])[:, None, None, None]  # black and white
    down, right = np.meshgrid(*[np.linspace(-1, 1, side)] * 2, indexing="ij")
    angle = rng.uniform(0, 2 * np.pi, (COUNT, 1, 1))
    ramp = ((np.cos(angle) * down + np.sin(angle) * right) / np.sqrt(2) + 1)[..., None] / 2
    salt = 255 * rng.integers(0, 2, (*shape[:3], 1)) * np.ones(channels)
    made = {
        "gaussian": draw_pixels("gaussian", rng, shape),
        "uniform": draw_pixels("uniform", rng, shape),
        "salt and pepper": salt,
        "constant": np.broadcast_to(colours[0], shape),
        "near black": rng.integers(0, 9, shape),
        "gradients": (1 - ramp) * colours[0] + ramp * colours[1],
    }
    return {name: np.asarray(np.rint(each), np.uint8) for name, each in made.items()}


def network(folder: Path, data: Path) -> tuple[nn.Module, dict[str, ImageSet], Preprocessing]:
    """A trained network with the images and the preprocessing that belong to it."""
    digits = folder.name.startswith("digits_without_")
    letter, name = folder.name.removeprefix("digits_without_").removeprefix("cifar7").split("_", 1)
    net = (ON_DIGITS[letter] if digits else TRAINED[letter][0])[name](7)
    net.load_state_dict(torch.load(folder / "net.pt", weights_only=True))
    sets = small_sets(DIGITS_LEFT_OUT[letter]) if digits else cifar_sets(data, LEFT_OUT[letter])
    return net.eval(), sets, DIGITS if digits else CIFAR


def rates(net: nn.Module, sets: dict[str, ImageSet], preprocessing: Preprocessing) -> list[dict[str, float]]:
    """The acceptance rates of ID images and of each kind: of a guard of images, and of one of prepared tensors."""
    train, calibration, test = (sets[name] for name in ("train", "calibration", "test"))
    assert isinstance(train, ArraySet)
    assert isinstance(calibration, ArraySet)
    assert isinstance(test, ArraySet)
    kinds = {"ID": test.images, **made_images(train.images.shape[1], preprocessing.channels)}
    fitting, held = (each.images.reshape(*each.images.shape[:3], -1) for each in (train, calibration))
    plain = Guard.fit(net, images=fitting, calibrate=held, preprocessing=preprocessing, workers=0, progress=False)

    def batches(images: Images) -> list[torch.Tensor]:
        one_channel = preprocessing.channels == 1 and images.ndim == 4
        return list(preprocessing.batch(list(images[..., 0] if one_channel else images)).split(64))

    tensors, others = batches(fitting), batches(held)
    prepared = Guard.fit(net, images=tensors, calibrate=others, prepared=True, progress=False)
    live = plain.attach(net), prepared.attach(net)
    found = []
    for each in live:
        accepted = {
            name: torch.cat([each.tensors(batch).accepted for batch in batches(images)])
            for name, images in kinds.items()
        }
        found.append({name: 100 * float(flags.double().mean()) for name, flags in accepted.items()})
    return found


def main() -> None:
    """Print a row per network."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--networks", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--store", help="the name under which docs/measured/auto.json keeps the table")
    given = parser.parse_args()
    torch.set_num_threads(1)
    lines: list[str] = []
    for folder in sorted(path.parent for path in given.networks.glob("*/net.pt")):
        ways = rates(*network(folder, given.data))
        if not lines:
            names = list(ways[0])
            lines = [f"| network | {' | '.join(names)} |", f"| --- |{' ---: |' * len(names)}"]
        cells = [" / ".join(f"{way['ID']:.1f}" for way in ways)]
        cells += [f"{max(way[name] for way in ways):.1f}" for name in names[1:]]
        lines.append(f"| {folder.name} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    print("\n".join(lines))
    if given.store:
        stored = json.loads(STORED.read_text(encoding="utf-8"))
        stored["tables"][f"{given.store}-guards"] = lines
        with replacing(STORED) as temporary:
            temporary.write_text(json.dumps(stored, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
