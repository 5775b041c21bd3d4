"""Images per second: decoding alone, the network alone, both together, and what `guard.score` adds, interleaved.

    python benches/decode.py [--json FILE]     EfficientNet-Lite0 on made-up JPEG files

Where decoding never starves the network, both together are as fast as the slower of the two alone. On a CPU they share
the cores, so the bound there is the sum of their CPU times over the cores. Next to our decoding stands torchvision's
loader with the same preprocessing, and `guard.score` of a folder next to a loop that decodes and runs the network; both
on one thread, by CPU time.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import torch

from harness import check, timed, write_checked
from live import guards
from oodshape import Classifier, Features, ImageFolder
from oodshape.core.machine import count_cores
from oodshape.images.decode.prefetch import prefetch_rows
from oodshape.images.decode.preprocessing import IMAGENET, Preprocessing
from oodshape.images.decode.read import open_image
from oodshape.networks.zoo import build
from pairs import declare_operators

BATCH, ROUNDS, IMAGES, SIDE = 32, 5, 96, 400


def main() -> None:
    """Print images per second of the three, and how near both together come to what the cores allow."""
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        made(Path(folder), IMAGES, SIDE)
        net, images = build("efficientnet_lite0").eval(), ImageFolder(folder)
        found: dict[str, object] = {"images_per_second": report(Classifier(net), images, IMAGENET, ROUNDS)}
        torch.set_num_threads(1)
        found |= next_to_torchvision(folder, images)
        scored(net, images)
    write_checked(**found)


def next_to_torchvision(folder: str, images: ImageFolder) -> dict[str, object]:
    """Decoding on one core, next to torchvision's loader: CPU time of both, and how many pixels differ."""
    declare_operators()
    from torchvision import transforms
    from torchvision.datasets.folder import default_loader

    size = transforms.Compose([transforms.Resize(256), transforms.CenterCrop(224), transforms.PILToTensor()])
    every, way, paths = range(len(images)), IMAGENET, images.files
    took = timed(
        {
            "ours": lambda: [None for _ in prefetch_rows(images, way, every, BATCH, 0)],
            "torchvision": lambda: [size(default_loader(path)) for path in paths],
        },
        ROUNDS,
    )
    mine = np.concatenate([pixels for _, pixels, _ in prefetch_rows(images, way, every, BATCH, 0)])
    other = np.stack([size(default_loader(path)).numpy().transpose(1, 2, 0) for path in paths])
    apart = float((mine != other).mean()) if mine.shape == other.shape else 1.0
    ratio = took.ratio("torchvision", "ours", cpu=True)
    print(f"  decoding on one core: {len(images) / took.cpu('ours'):.0f} images/s, torchvision's loader", end=" ")
    print(f"{len(images) / took.cpu('torchvision'):.0f}; theirs / ours {ratio}; {100 * apart:.2g} % of pixels differ")
    check("decoding, torchvision's loader / ours, CPU", ratio, 0.95, at_least=True)
    return {"decoding_per_core": len(images) / took.cpu("ours"), "pixels_differ": apart}


def scored(net: torch.nn.Module, images: ImageFolder) -> None:
    """`guard.score` of a folder over a loop that decodes and runs the network, in batches of 32 and of 1."""
    guard = guards(net)["optfs-e"]
    paths = images.files

    def loop(some: list[str], size: int) -> None:
        with torch.inference_mode():
            for start in range(0, len(some), size):
                pixels = [IMAGENET.pixels(open_image(path, upright=False)) for path in some[start : start + size]]
                net(IMAGENET.normalize(np.stack(pixels)))

    for size, limit in ((32, 1.1), (1, 1.25)):
        some = paths if size > 1 else paths[: len(paths) // 3]
        took = timed(
            {
                "loop": lambda some=some, size=size: loop(some, size),
                "guard": lambda some=some, size=size: list(
                    guard.score(some, net, batch_size=size, progress=False, workers=0)
                ),
            },
            ROUNDS,
        )
        check(f"guard.score / network and decoding, batches of {size}", took.ratio("guard", "loop", cpu=True), limit)


def made(folder: Path, count: int, side: int) -> None:
    """Write smooth random JPEG files."""
    rng = np.random.default_rng(0)
    for number in range(count):
        coarse = PIL.Image.fromarray(rng.integers(0, 256, size=(24, 32, 3), dtype=np.uint8))
        coarse.resize((side * 4 // 3, side), PIL.Image.Resampling.BICUBIC).save(folder / f"{number:04}.jpg", quality=90)


def report(classifier: Classifier, images: ImageFolder, way: Preprocessing, rounds: int) -> dict[str, float]:
    """Images per second of each, printed and given."""
    every = range(len(images))
    batch = way.normalize(next(prefetch_rows(images, way, every, min(BATCH, len(images)), 0))[1])
    classifier(batch)
    passes = -(-len(images) // len(batch))
    tasks: dict[str, Callable[[], object]] = {
        "decoding": lambda: [None for _ in prefetch_rows(images, way, every, BATCH)],
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
    bound = min(alone, count_cores() / work)
    print(f"  both reach {speed['both'] / bound:.2f} of what the slower one and the {count_cores()} cores allow")
    return speed


if __name__ == "__main__":
    main()
