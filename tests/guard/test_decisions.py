"""What is no image is refused before any work."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from oodshape import Guard, InputError

MODEL = "zoo:digits-convnet"


class Numbered(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.zeros(1, 16, 16), row


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"images": "train"}, "got dict"),
        (None, "give images to fit on, or parts"),
        (3, "got int"),
        ([3, 4], "got list with int at place 0"),
        (["a.png", None], "got list with NoneType at place 1"),
        (["a.png", torch.zeros(1)], r"\[C, H, W\] with 1, 3 or 4 channels, got \[1\]"),
        (torch.zeros(2, 1, 16, 16) - 1, r"lies in 0..1, got -1 to -1; .*prepared=True"),
        (torch.zeros(2, 1, 16, 16, dtype=torch.int64), "uint8, or float in 0..1, got torch.int64"),
        (np.zeros((2, 16, 16), np.uint8), r"got uint8\[2, 16, 16\]; gray images .* images\[..., None\]"),
        (np.zeros((16, 16)), r"got float64\[16, 16\]"),
        (np.zeros((0, 16, 16, 3), np.uint8), r"got uint8\[0, 16, 16, 3\]"),
        (torch.utils.data.DataLoader(Numbered(), batch_size=2), r"got \[2, 1, 16, 16\]; .*prepared=True"),
    ],
)
def test_what_is_no_image_is_refused_before_any_work(given: Any, named: str) -> None:
    with pytest.raises(InputError, match=named) as refused:
        Guard.fit(MODEL, images=given, method="msp")
    assert "\n" not in str(refused.value)


def test_score_refuses_when_it_is_called(guard: Guard, digits: Path) -> None:
    with pytest.raises(InputError, match="got int"):
        guard.score(3, MODEL)  # no row is asked for
    with pytest.raises(InputError, match="got int"):
        guard.check(digits / "test", {"other": 3}, MODEL)
    with pytest.raises(InputError, match="prepared=True takes .* got int"):
        guard.score(3, MODEL, prepared=True)
