"""Features in a lower precision are other features: they have a name of their own in the cache."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from oodshape.features.features import Features
from oodshape.images.image_set import ArraySet
from oodshape.images.preprocessing import Preprocessing
from oodshape.networks.classifier import Classifier

pytestmark = pytest.mark.usefixtures("one_thread")
GRAY = Preprocessing(mean=(0.5,), std=(0.5,))
IMAGES = ArraySet("made", np.random.default_rng(0).integers(0, 256, size=(30, 8, 8), dtype=np.uint8))


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 24), nn.ReLU(), nn.Linear(24, 4))


def test_a_lower_precision_has_another_cache_and_float32_the_one_of_before(tmp_path: Path) -> None:
    exact, rough = (
        Features.extract(Classifier(net(), precision=each), IMAGES, GRAY, cache=tmp_path, workers=0, batch_size=8)
        for each in ("float32", "bfloat16")
    )
    assert len([each for each in tmp_path.iterdir() if each.is_dir()]) == 2
    left, right = (np.concatenate([part.numpy() for _, part in each.chunks()]) for each in (exact, rough))
    assert 0 < np.abs(left - right).max() < 0.05 * np.abs(left).max()
    assert exact.head.fingerprint == rough.head.fingerprint
