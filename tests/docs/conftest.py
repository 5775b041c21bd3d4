"""What the pages' examples find in their folder."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image


@pytest.fixture
def folders(tmp_path, monkeypatch: pytest.MonkeyPatch) -> Path:
    rng = np.random.default_rng(0)
    for name, count in (("train", 40), ("val", 40), ("inbox", 2)):
        for i in range(count):
            path = tmp_path / name / f"class{i % 2}" / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            Image.fromarray(rng.integers(256, size=(40, 50, 3), dtype=np.uint8)).save(path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OODSHAPE_CACHE", str(tmp_path / "cache"))
    return tmp_path


@pytest.fixture
def net() -> torch.nn.Module:
    """A network that is not trained."""
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 16, 9, stride=8), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    return torch.nn.Sequential(*layers, torch.nn.Linear(16, 2))
