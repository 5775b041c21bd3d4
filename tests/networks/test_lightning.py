"""A real LightningModule, trained by a Trainer, is a network like any other: read, guarded, attached, exported."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from oodshape import METHODS, Classifier, Detector, Features
from small_nets import C, M, body, explains, images, same, values

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def trained() -> Any:
    """A module that holds on to its trainer, its logged values and its hyperparameters."""
    sys.path.insert(0, str(Path(__file__).parents[2] / "benches"))
    from pairs import declare_operators

    declare_operators()  # lightning imports torchvision
    lightning = pytest.importorskip("lightning", reason="need lightning (pip install lightning)", exc_type=ImportError)

    class Lit(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self, rate: float = 0.1) -> None:
            super().__init__()
            self.save_hyperparameters()
            self.body, self.fc = body(), nn.Linear(M, C)

        def forward(self, x: Tensor) -> Any:
            return self.fc(self.body(x))

        def training_step(self, batch: tuple[Tensor, Tensor], _: int) -> Tensor:
            loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
            self.log("loss", loss)
            return loss

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), self.hparams.rate)

    torch.manual_seed(0)
    net = Lit()
    rows = [(image, row % C) for row, image in enumerate(images(16))]
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(max_epochs=1, accelerator="cpu", **quiet)
    trainer.fit(net, torch.utils.data.DataLoader(rows, batch_size=8))
    assert net.trainer is trainer
    return net


def fitted(net: nn.Module) -> Detector:
    torch.manual_seed(1)
    outputs = Classifier(net)(images(80))
    features = Features.from_arrays(outputs.features, outputs.head)
    return METHODS["optfs-e"].fit(features).calibrate(features, alpha=0.2)


def test_it_is_read_and_left_as_it_was(trained: Any) -> None:
    before = values(trained.train())
    classifier = Classifier(trained)
    explains(classifier(images()))
    assert classifier.head_name == "fc"
    assert trained.training
    assert same(values(trained), before)


def test_it_is_guarded_and_exported(trained: Any, tmp_path: Path) -> None:
    from oodshape.guard.export.onnx import export_onnx

    detector, batch = fitted(trained), images(20)
    with torch.no_grad():
        _, score, _ = detector.wrap(trained)(batch)
    torch.testing.assert_close(score, detector.score(Classifier(trained), batch), rtol=1e-4, atol=1e-4)
    report = export_onnx(trained, detector, tmp_path / "guarded.onnx", batch)
    assert (report.images, report.decisions) == (20, 0)
