"""What the guard costs: a wrapped network's time over the network's own, interleaved, batch 32.

python benches/wrap.py [WEIGHTS]     EfficientNet-Lite0; the time does not depend on its weights
"""

from __future__ import annotations

import sys

import numpy as np
import torch

from common import timed
from oodshape import METHODS, Features
from oodshape.outputs import Head
from oodshape.zoo import build

BATCH, ROUNDS = 32, 15
NAMES = ("optfs-v", "optfs-e", "ash-s")


def main() -> None:
    """Print one line per method."""
    torch.manual_seed(0)
    net = build("efficientnet_lite0", *sys.argv[1:2])
    layer = [module for module in net.modules() if isinstance(module, torch.nn.Linear)][-1]
    rng = np.random.default_rng(0)
    z = np.maximum(rng.normal(size=(2000, layer.in_features)), 0).astype(np.float32)
    train = Features.from_arrays(z, Head.of((layer.weight, layer.bias)))
    guarded = {name: METHODS[name].fit(train).calibrate(train).wrap(net) for name in NAMES}
    images = torch.randn(BATCH, 3, 224, 224).contiguous(memory_format=torch.channels_last)
    with torch.inference_mode():
        tasks = {"network": lambda: net(images)}
        tasks |= {name: lambda module=module: module(images) for name, module in guarded.items()}
        seconds = timed(tasks, ROUNDS)
        features = guarded["optfs-e"].features(images)
        logits = guarded["optfs-e"].tap.logits(features)
        parts = {name: lambda module=module: module.score(features, logits) for name, module in guarded.items()}
        alone = timed(parts, ROUNDS)
    for name in NAMES:
        print(
            f"{name:<8} {1000 * seconds[name]:7.1f} ms, network {1000 * seconds['network']:7.1f} ms, "
            f"ratio {seconds[name] / seconds['network']:.4f}; score alone {1000 * alone[name]:.2f} ms = "
            f"{100 * alone[name] / seconds['network']:.2f} %"
        )


if __name__ == "__main__":
    main()
