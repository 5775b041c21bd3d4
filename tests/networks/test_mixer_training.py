"""The script that trains MLP-Mixer-Nano."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch

from oodshape.images.image_set import ArraySet
from small_nets import same, values

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def script() -> ModuleType:
    path = Path(__file__).parents[2] / "scripts" / "train_mixer_nano.py"
    spec = spec_from_file_location("train_mixer_nano", path)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_a_training_that_was_stopped_ends_like_one_that_was_not(script: ModuleType, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = ArraySet("noise", rng.integers(0, 256, (24, 32, 32, 3), np.uint8), rng.integers(0, 10, 24))
    recipe = script.Recipe(epochs=2, batch=8, mixup=0.2, cutout=8)
    whole = script.train(recipe, data, tmp_path / "whole.pt")
    stopped = script.train(recipe, data, tmp_path / "a.pt", stop=4)
    torch.manual_seed(123)  # the rest must not depend on what ran in between
    ended = script.train(recipe, data, tmp_path / "a.pt")
    assert (whole.step, stopped.step, ended.step) == (6, 4, 6)
    assert same(values(whole.net), values(ended.net))
    assert not same(values(stopped.net), values(ended.net))
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["a.pt", "whole.pt"]
    with pytest.raises(SystemExit, match="made with another batch, seed"):
        script.train(script.Recipe(epochs=2, batch=4, mixup=0.2, cutout=8, seed=1), data, tmp_path / "a.pt")
