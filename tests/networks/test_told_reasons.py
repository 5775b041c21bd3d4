"""Libraries and files that cannot be used are named for what they are, with the way out."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from oodshape.core.errors import InputError
from oodshape.networks.classifier import Classifier
from oodshape.networks.opening import open_model
from oodshape.networks.weights import load_weights
from oodshape.networks.zoo.registry import build

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture
def script(tmp_path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of torch.jit itself
        traced: Any = torch.jit.trace(nn.Linear(3, 2), torch.rand(2, 3))
        traced.save(tmp_path / "net.pt")
    return tmp_path / "net.pt"


def test_a_torchscript_file_is_told_as_model_and_as_weights(script: Path) -> None:
    with pytest.raises(InputError, match=r"is a TorchScript archive .*\(package.module:function"):
        open_model(str(script))
    with pytest.raises(InputError, match=r"is a TorchScript archive .* none of it was run"):
        load_weights(nn.Linear(3, 2), script)


def test_what_is_no_model_is_told() -> None:
    with pytest.raises(InputError, match="a model is timm:NAME.* got int"):
        open_model(3)  # type: ignore[arg-type]


def test_images_of_a_size_that_the_network_cannot_take_are_named() -> None:
    images = torch.zeros(2, 1, 40, 50)
    with pytest.raises(InputError, match=r"images of shape \[1, 40, 50\] with RuntimeError: mat1 .*--resize, --crop"):
        Classifier(build("digits-mixer"))(images)
