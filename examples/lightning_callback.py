"""Lightning: a callback that logs AUROC and FPR95 against OOD loaders after each validation epoch.

pip install lightning 'oodshape[torch]'
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import lightning
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from oodshape import evaluate
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.preprocessing import DIGITS


class OODMetrics(lightning.Callback):
    """Logs `ood/<method>/<set>/auroc` and `.../fpr95`, fractions in 0..1; the batches are prepared as in training."""

    def __init__(self, train: Any, id: Any, ood: Mapping[str, Any], methods: Sequence[str] = ("energy",)) -> None:
        """Take the loaders: training images to fit methods on, ID images to test on, OOD images by name."""
        self.sets = {"train": train, "id": id, "ood": dict(ood), "methods": list(methods)}

    def on_validation_epoch_end(self, trainer: lightning.Trainer, pl_module: lightning.LightningModule) -> None:
        """Score all sets with the network as it is now."""
        if trainer.sanity_checking:
            return
        was_training = pl_module.training
        pl_module.eval()
        results = evaluate(pl_module, **self.sets, resamples=1, cache=None, progress=False)
        pl_module.train(was_training)
        for row in results.to_pandas().itertuples():
            for name in ("auroc", "fpr95"):
                pl_module.log(f"ood/{row.method}/{row.ood}/{name}", getattr(row, name))


class Digits(lightning.LightningModule):
    """Your own module: its forward returns the logits of a last linear layer."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Flatten(), nn.Linear(256, 64), nn.ReLU(), nn.Linear(64, 8))

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.net(images)
        return logits

    def training_step(self, batch: list[Tensor], _: int) -> Tensor:
        return nn.functional.cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], _: int) -> None:
        self.log("val/accuracy", (self(batch[0]).argmax(1) == batch[1]).float().mean())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=3e-3)


def loader(name: str, count: int) -> DataLoader[Any]:
    """Batches (images, labels) of a set that comes with the package."""
    digits = load_digits_sets()[name]
    labels = torch.from_numpy(digits.labels[:count].copy())
    return DataLoader(TensorDataset(DIGITS.batch(digits.images[:count]), labels), batch_size=64)


def main() -> None:
    """Train for three epochs."""
    train, test = loader("train", 600), loader("test", 200)
    ood = {name: loader(name, 200) for name in ("letters", "photos")}
    callback = OODMetrics(train, test, ood, ["energy", "mds"])
    trainer = lightning.Trainer(
        max_epochs=3,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Digits(), train, test)
    for name, value in sorted(trainer.callback_metrics.items()):
        print(f"{name}: {value:.3f}")


if __name__ == "__main__":
    main()
