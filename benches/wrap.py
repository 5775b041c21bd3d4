"""What the guard costs: a wrapped network's time over the network's own, interleaved, batch 32.

python benches/wrap.py [WEIGHTS]     EfficientNet-Lite0; the time does not depend on its weights
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable

import numpy as np
import torch

from oodshape import METHODS, Features
from oodshape.networks.head import Head
from oodshape.networks.zoo import build

BATCH, ROUNDS = 32, 15
NAMES = ("optfs-v", "optfs-e", "ash-s")


def medians(tasks: dict[str, Callable[[], object]]) -> dict[str, tuple[float, float]]:
    """(wall, CPU) milliseconds of each task, all run once per round; CPU time hardly minds a busy machine."""
    seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in tasks}
    for number in range(ROUNDS + 1):
        for name, task in tasks.items():
            wall, cpu = time.perf_counter(), time.process_time()
            task()
            if number:  # the first round warms up
                seconds[name].append((time.perf_counter() - wall, time.process_time() - cpu))
    return {
        name: (1000 * statistics.median(wall for wall, _ in pairs), 1000 * statistics.median(cpu for _, cpu in pairs))
        for name, pairs in seconds.items()
    }


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
        spent = medians(tasks)
        features = guarded[NAMES[0]].features(images)
        logits = guarded[NAMES[0]].tap.logits(features)
        alone = medians({n: lambda module=module: module.score(features, logits) for n, module in guarded.items()})
    wall, cpu = spent["network"]
    print(f"network {wall:8.1f} ms wall, {cpu:8.1f} ms CPU")
    for name in NAMES:
        print(
            f"{name:<7} {spent[name][0]:8.1f} ms wall, {spent[name][1]:8.1f} ms CPU: ratio {spent[name][0] / wall:.4f} "
            f"wall, {spent[name][1] / cpu:.4f} CPU; the score alone {100 * alone[name][1] / cpu:.2f} % CPU"
        )


if __name__ == "__main__":
    main()
