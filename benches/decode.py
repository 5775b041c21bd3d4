"""Images per second: decoding alone, the network alone, and both together, interleaved.

python benches/decode.py [WEIGHTS]     EfficientNet-Lite0 on made-up JPEG files; the time does not depend on its weights

Where decoding never starves the network, both together are as fast as the slower of the two alone. On a CPU they share
the cores, so the bound there is the sum of their CPU times over the cores.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import torch

from harness import timed
from oodshape import Classifier, Features, ImageFolder
from oodshape.core.machine import cores
from oodshape.images.decode.prefetch import decoded_rows
from oodshape.images.decode.preprocessing import IMAGENET, Preprocessing
from oodshape.networks.zoo import build

BATCH, ROUNDS, IMAGES, SIDE = 32, 5, 128, 400


def main() -> None:
    """Print images per second of the three, and how near both together come to what the cores allow."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        made(Path(folder), IMAGES, SIDE)
        report(Classifier(build("efficientnet_lite0", *sys.argv[1:2])), ImageFolder(folder), IMAGENET, ROUNDS)


def made(folder: Path, count: int, side: int) -> None:
    """Write smooth random JPEG files."""
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = PIL.Image.fromarray(rng.integers(0, 256, size=(24, 32, 3), dtype=np.uint8))
        coarse.resize((side * 4 // 3, side), PIL.Image.Resampling.BICUBIC).save(folder / f"{number:04}.jpg", quality=90)


def report(classifier: Classifier, images: ImageFolder, way: Preprocessing, rounds: int) -> dict[str, float]:
    """Images per second of each, printed and given."""
    every = range(len(images))
    batch = way.normalize(next(decoded_rows(images, way, every, min(BATCH, len(images)), 0))[1])
    classifier(batch)
    passes = -(-len(images) // len(batch))
    tasks: dict[str, Callable[[], object]] = {
        "decoding": lambda: [None for _ in decoded_rows(images, way, every, BATCH)],
        "network": lambda: [classifier(batch) for _ in range(passes)],
        "both": lambda: Features.extract(classifier, images, way, batch_size=BATCH, progress=False),
    }
    seconds = timed(tasks, rounds)
    counts = {"decoding": len(images), "network": passes * len(batch), "both": len(images)}
    speed = {name: counts[name] / seconds.wall(name) for name in tasks}
    for name, value in speed.items():
        print(f"  {name:<10} {value:8.1f} images/s, {1000 * seconds.cpu(name) / counts[name]:7.2f} ms of CPU each")
    alone = min(speed["decoding"], speed["network"])
    work = sum(seconds.cpu(name) / counts[name] for name in ("decoding", "network"))
    bound = min(alone, cores() / work)
    print(f"  both reach {speed['both'] / bound:.2f} of what the slower one and the {cores()} cores allow")
    return speed


if __name__ == "__main__":
    main()
