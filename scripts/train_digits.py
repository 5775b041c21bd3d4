"""Train the three small networks of the digits benchmark and write their weights into the package.

    python scripts/train_digits.py

Only digits 0-7 of the training split are used, with one fixed recipe for the three networks; the test split
is read once, at the end, and no OOD image is ever seen.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor
from torch.nn import functional

from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.image_set import ArraySet
from oodshape.networks.zoo.digits_nets import SMALL_NETS, SmallNet, load_small_net

WEIGHTS = Path(__file__).parents[1] / "src" / "oodshape" / "networks" / "zoo" / "weights"
EPOCHS = 150
BATCH = 64
LEARNING_RATE = 2e-3
WEIGHT_DECAY = 0.05
WARMUP = 0.05  # share of the steps
REQUIRED_ACCURACY = 0.97


def jitter(images: Tensor) -> Tensor:
    """[N, 1, H, W] pixels -> the same, turned (10 degrees), scaled (10 %), moved (1.2 pixels) at most."""
    n = len(images)
    uniform = torch.rand(4, n) * 2 - 1
    angle, scale, shift = uniform[0] * math.radians(10), 1 + 0.1 * uniform[1], 0.15 * uniform[2:]
    cos, sin = angle.cos() * scale, angle.sin() * scale
    matrix = torch.stack([cos, -sin, shift[0], sin, cos, shift[1]], 1).view(n, 2, 3)
    grid = functional.affine_grid(matrix, list(images.shape), align_corners=False)
    return functional.grid_sample(images, grid, align_corners=False)


def train(name: str, data: ArraySet, epochs: int, made: Callable[..., SmallNet] = load_small_net) -> SmallNet:
    """A trained network: AdamW, linear warm-up, cosine decay, the last step's weights."""
    torch.manual_seed(0)
    net = made(name, pretrained=False).train()
    pixels, labels = torch.tensor(data.images, dtype=torch.float32)[:, None], torch.tensor(data.labels)
    mean, std = 255 * DIGITS.mean[0], 255 * DIGITS.std[0]
    steps = epochs * (len(data) // BATCH)
    optimizer = torch.optim.AdamW(net.parameters(), LEARNING_RATE, weight_decay=WEIGHT_DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min(1.0, (step + 1) / (WARMUP * steps)) * 0.5 * (1 + math.cos(math.pi * step / steps)),
    )
    for _ in range(epochs):
        for batch in torch.randperm(len(data))[: len(data) // BATCH * BATCH].view(-1, BATCH):
            loss = functional.cross_entropy(net((jitter(pixels[batch]) - mean) / std), labels[batch])
            optimizer.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            schedule.step()
    return net.eval()


def accuracy(net: SmallNet, data: ArraySet) -> float:
    """The share of images whose largest logit is their class."""
    with torch.inference_mode():
        hits = net(DIGITS.batch(data.images)).argmax(1) == torch.tensor(data.labels)
    return float(hits.double().mean())


def write(weights: dict[str, Tensor], path: Path) -> None:
    """Write the weights under a temporary name, then rename: no reader sees half a file."""
    part = path.with_suffix(".part")
    save_file(weights, part)
    part.chmod(0o644)
    part.replace(path)


def main() -> None:
    """Train, check and write the networks; exit with an error when one is below the required accuracy."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=WEIGHTS, help="folder of the weights")
    parser.add_argument("--epochs", type=int, default=EPOCHS)
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)  # the order of sums, and so the result, is the same on any number of cores
    torch.use_deterministic_algorithms(True)
    sets = load_digits_sets()
    for name in SMALL_NETS:
        start = time.perf_counter()
        state = train(name, sets["train"], arguments.epochs).state_dict()
        weights = {key: value.half() if value.is_floating_point() else value for key, value in state.items()}
        net = load_small_net(name, pretrained=False).eval()
        net.load_state_dict(weights)
        reached = accuracy(net, sets["test"])
        print(f"{name}: test accuracy {reached:.4f}, trained in {time.perf_counter() - start:.0f} s")
        if reached < REQUIRED_ACCURACY:
            raise SystemExit(f"{name} reaches {reached:.4f} < {REQUIRED_ACCURACY}; its weights are not written")
        write(weights, arguments.out / f"digits_{name}.safetensors")


if __name__ == "__main__":
    main()
