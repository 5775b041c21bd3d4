"""A numpy batch [N, H, W, C], uint8: fit on it, check it, score it."""

from __future__ import annotations

from oodshape import Guard
from oodshape.images.datasets.digits import load_digits_sets


def main() -> None:
    """Small digits, which come with the package; they are gray, so that C is 1."""
    images = {name: each.images[..., None] for name, each in load_digits_sets().items()}
    train, val, test = images["train"][:300], images["test"][:100], images["test"][100:160]

    guard = Guard.fit("zoo:digits-convnet", images=train, calibrate=val, method="optfs-e")
    for row in guard.score(test[:3], model="zoo:digits-convnet"):
        print(f"{row.path}: class {row.label}, p = {row.p_value:.2f}, {'accepted' if row.accepted else 'rejected'}")
    check = guard.check(test, {"photos": images["photos"][:60]}, model="zoo:digits-convnet")
    print(f"AUROC against photos: {check.compared(check.outside[0])['auroc'].value:.2f}")


if __name__ == "__main__":
    main()
