"""What the guard costs: a wrapped network's time over the network's own, interleaved, batch 32.

python benches/wrap.py [WEIGHTS]     EfficientNet-Lite0; the time does not depend on its weights
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import numpy as np
import torch

from harness import timed
from oodshape import METHODS, Features
from oodshape.networks.head import Head
from oodshape.networks.zoo import build

BATCH, ROUNDS = 32, 15
NAMES = ("optfs-v", "optfs-e", "ash-s")


def main() -> None:
    """Print one line per method."""
    torch.manual_seed(0)
    net = build("efficientnet_lite0", *sys.argv[1:2])
    layer = [module for module in net.modules() if isinstance(module, torch.nn.Linear)][-1]
    z = np.maximum(np.random.default_rng(0).normal(size=(2000, layer.in_features)), 0).astype(np.float32)
    train = Features.from_arrays(z, Head.of((layer.weight, layer.bias)))
    guarded = {name: METHODS[name].fit(train).calibrate(train).wrap(net) for name in NAMES}
    images = torch.randn(BATCH, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        tasks: dict[str, Callable[[], object]] = {"network": lambda: net(images)}
        tasks |= {name: lambda module=module: module(images) for name, module in guarded.items()}
        spent = timed(tasks, ROUNDS)
        features = guarded[NAMES[0]].features(images)
        logits = guarded[NAMES[0]].tap.logits(features)
        scores = {n: lambda module=module: module.score(features, logits) for n, module in guarded.items()}
        alone = timed(scores, ROUNDS)
    print(f"network {1e3 * spent.wall('network'):8.1f} ms wall, {1e3 * spent.cpu('network'):8.1f} ms CPU")
    for name in NAMES:
        wall, cpu = spent.ratio(name, "network"), spent.ratio(name, "network", cpu=True)
        print(
            f"{name:<7} {1e3 * spent.wall(name):8.1f} ms wall, {1e3 * spent.cpu(name):8.1f} ms CPU: ratio "
            f"{wall.median:.4f} wall, {cpu.median:.4f} CPU; "
            f"the score alone {100 * alone.cpu(name) / spent.cpu('network'):.2f} % CPU"
        )


if __name__ == "__main__":
    main()
