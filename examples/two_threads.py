"""One image at a time, from two threads: an attached guard takes calls from any number of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

from oodshape import Guard, Live
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.networks.zoo import build


def accepted(live: Live, images: Any) -> int:
    """How many images are accepted, asked one by one."""
    return sum(live(image).accepted for image in images)


def main() -> None:
    """Two cameras, one network."""
    net, sets = build("digits-convnet"), load_digits_sets()
    train, val = sets["train"].images[:300, :, :, None], sets["test"].images[:100, :, :, None]
    guard = Guard.fit("zoo:digits-convnet", images=train, calibrate=val, method="optfs-e")
    live = guard.attach(net)
    cameras = sets["test"].images[100:140], sets["photos"].images[:40]
    with ThreadPoolExecutor(2) as pool:
        for name, count in zip(
            ("digits", "photos"), pool.map(lambda images: accepted(live, images), cameras), strict=True
        ):
            print(f"{name}: {count} of 40 accepted")


if __name__ == "__main__":
    main()
