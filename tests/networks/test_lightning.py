"""A real LightningModule is a network like any other."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oodshape.networks.classifier import Classifier
from small_nets import C, M, body, explains, images


@pytest.mark.filterwarnings("ignore")
def test_a_lightning_module_is_read_and_left_as_it_was() -> None:
    lightning = pytest.importorskip("lightning", exc_type=ImportError)

    class Lit(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.body, self.fc = body(), nn.Linear(M, C)

        def forward(self, x: Tensor) -> Any:
            return self.fc(self.body(x))

    torch.manual_seed(0)
    net = Lit().train()
    classifier = Classifier(net)
    explains(classifier(images()))
    assert classifier.head_name == "fc"
    assert net.training
