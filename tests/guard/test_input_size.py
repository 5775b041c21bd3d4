"""A guard holds for inputs of the size that it was fitted on: every other size is refused, wherever it comes in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from oodshape import Guard, GuardedFile, InputError, Preprocessing

GRAY = Preprocessing(mean=(0.5,), std=(0.25,))  # leaves images in their own size
REFUSED = r"input is \[1, 16, 16\].*\[1, 8, 8\].*resize"


def pictures(n: int, side: int = 8, seed: int = 0) -> list[Any]:
    return list(np.random.default_rng(seed).integers(256, size=(n, side, side, 1), dtype=np.uint8))


def tensors(n: int, side: int = 8, seed: int = 0) -> torch.Tensor:
    return GRAY.batch(pictures(n, side, seed))


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)  # takes any size
    return nn.Sequential(nn.Conv2d(1, 6, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3)).eval()


@pytest.fixture(scope="module")
def guard(net: nn.Module, tmp_path_factory: pytest.TempPathFactory) -> Guard:
    path = tmp_path_factory.mktemp("guard") / "guard.safetensors"
    fit(net, pictures(60), pictures(40, seed=1)).save(path)
    return Guard.load(path)


def fit(net: nn.Module, images: Any, calibrate: Any, **options: Any) -> Guard:
    options = {"preprocessing": GRAY, "method": "energy", "progress": False} | options
    return Guard.fit(net, images=images, calibrate=calibrate, **options)


REFUSALS: dict[str, Callable[[Guard, nn.Module], Any]] = {
    "fit": lambda _, net: fit(net, pictures(60), pictures(40, 16)),
    "calibrate": lambda guard, net: guard.calibrate(pictures(40, 16), net, progress=False),
    "calibrate prepared": lambda guard, net: guard.calibrate(tensors(40, 16), net, prepared=True, progress=False),
    "check": lambda guard, net: guard.check(pictures(9), pictures(9, 16), net, progress=False),
    "score prepared": lambda guard, net: list(guard.score(tensors(3, 16), net, prepared=True, progress=False)),
    "live": lambda guard, net: guard.attach(net)(pictures(3, 16)),
    "live prepared": lambda guard, net: guard.attach(net)(tensors(3, 16), prepared=True),
    "live tensors": lambda guard, net: guard.attach(net).tensors(tensors(3, 16)),
    "export": lambda guard, net: guard.export("never.onnx", net, images=pictures(3, 16)),
}


@pytest.mark.parametrize("where", REFUSALS)
def test_another_size_is_refused(where: str, guard: Guard, net: nn.Module) -> None:
    with pytest.raises(InputError, match=REFUSED):
        REFUSALS[where](guard, net)


def test_an_image_of_another_size_is_a_row_with_an_error(guard: Guard, net: nn.Module, tmp_path: Path) -> None:
    images = [*pictures(2), *pictures(1, 16), *pictures(1, seed=5)]
    rows = list(guard.score(images, net, progress=False))
    assert [row.accepted is None for row in rows] == [False, False, True, False]
    assert "[1, 16, 16]" in rows[2].error
    assert rows[3].score == pytest.approx(next(guard.score(images[3:], net, progress=False)).score, rel=1e-4)
    guard.export(tmp_path / "guard.onnx", net, images=pictures(4))
    with pytest.raises(InputError, match=r"16 x 16 pixels.*8 x 8"):
        GuardedFile(tmp_path / "guard.onnx")(images[2])


def test_a_guard_of_several_sizes_takes_any(net: nn.Module) -> None:
    mixed = [*pictures(30), *pictures(30, 12)]
    guard = fit(net, mixed, [*pictures(20, seed=1), *pictures(20, 12, seed=1)], batch_size=1)
    assert guard.about.input_shape is None
    assert all(row.accepted is not None for row in guard.score(pictures(3, 16), net, progress=False))


def test_prepared_tensors_have_a_size_too(net: nn.Module) -> None:
    options = {"preprocessing": None, "prepared": True}
    assert fit(net, tensors(60), tensors(40, seed=1), **options).about.input_shape == (1, 8, 8)
    with pytest.raises(InputError, match=REFUSED):
        Guard.fit(net, images=tensors(60), calibrate=tensors(40, 16), method="energy", prepared=True, progress=False)
    several = fit(net, [tensors(60), tensors(60, 12)], tensors(40, seed=1), **options)
    assert several.about.input_shape is None
