"""Pictures in memory: a guard for PIL images, and a verdict on each new one."""

from __future__ import annotations

import numpy as np
import PIL.Image

from oodshape import Guard
from oodshape.images.datasets.digits import load_digits_sets


def main() -> None:
    """Small digits, which come with the package, stand in for your own pictures."""
    sets = load_digits_sets()
    train = [PIL.Image.fromarray(image) for image in sets["train"].images[:300]]
    val = [PIL.Image.fromarray(image) for image in sets["test"].images[:100]]

    guard = Guard.fit("zoo:digits-convnet", images=train, calibrate=val, method="optfs-e")
    live = guard.attach("zoo:digits-convnet")
    for name in ("test", "photos"):
        verdicts = live([PIL.Image.fromarray(image) for image in sets[name].images[-50:]])
        print(f"{name}: {np.mean([verdict.accepted for verdict in verdicts]):.0%} accepted")


if __name__ == "__main__":
    main()
