"""Features of prepared tensors are kept by the content of each image."""

from __future__ import annotations

import tracemalloc
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader

from oodshape import Classifier, Features, InputError


class Net(nn.Module):
    """A small network that counts the images it sees."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.body, self.head, self.seen, self.factor = nn.Linear(12, 6), nn.Linear(6, 3), 0, 1.0

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        self.seen += len(images)
        return self.head(self.factor * self.body(images.flatten(1)).relu())


PROBES = 14  # images of the checks before the first batch


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(80, 3, 2, 2, generator=torch.Generator().manual_seed(0))


def extract(net: Net, batches: object, cache: Path | None) -> tuple[Features, int]:
    """The features, and how many images went through the network."""
    net.seen = 0
    return Features.extract(Classifier(net), batches, prepared=True, cache=cache, progress=False), net.seen


def values(features: Features) -> np.ndarray:
    return np.concatenate([part.numpy() for _, part in features.chunks()])


def test_a_shuffled_loader_is_known_again(images: torch.Tensor, tmp_path: Path) -> None:
    net, labels = Net(), torch.arange(80)
    plain = values(extract(net, images, None)[0])
    first, many = extract(net, zip(images.split(20), labels.split(20), strict=True), tmp_path)
    assert 80 <= many <= 80 + PROBES
    order = torch.randperm(80, generator=torch.Generator().manual_seed(1))
    again, few = extract(net, zip(images[order].split(7), labels[order].split(7), strict=True), tmp_path)
    assert few <= PROBES
    np.testing.assert_allclose(values(first), plain, atol=1e-6)
    np.testing.assert_allclose(values(again), plain[order], atol=1e-6)
    assert again.labels.tolist() == order.tolist()
    assert again.predictions.tolist() == first.predictions[order].tolist()


def test_only_new_images_run_and_a_changed_network_runs_all(images: torch.Tensor, tmp_path: Path) -> None:
    net = Net()
    extract(net, images[:50], tmp_path)
    both, some = extract(net, images, tmp_path)
    assert 30 <= some <= 30 + PROBES
    np.testing.assert_allclose(values(both), values(extract(net, images, None)[0]), atol=1e-5)
    net.factor = 2.0  # another forward pass of the same weights
    changed, many = extract(net, images, tmp_path)
    assert many >= 80
    np.testing.assert_allclose(values(changed), 2 * values(both), atol=1e-5)


class Augmented(torch.utils.data.TensorDataset):
    """A flip that is drawn each time an image is read."""

    def __getitem__(self, index: int) -> tuple[torch.Tensor, ...]:
        image = super().__getitem__(index)[0]
        return (image.flip(-1) if torch.rand(()) < 0.5 else image,)


def test_random_augmentation_is_refused(images: torch.Tensor) -> None:
    torch.manual_seed(0)
    plain = torch.utils.data.TensorDataset(images.masked_fill(images > 2, torch.nan))
    for each in (Augmented(images), torch.utils.data.DataLoader(Augmented(images), 20)):
        with pytest.raises(InputError, match="another tensor each time it is read.*transform of the evaluation"):
            extract(Net(), each, None)
    with pytest.raises(InputError, match="NaN"):  # which is equal to itself here
        extract(Net(), plain, None)


def test_a_cache_larger_than_the_call_is_not_loaded(images: torch.Tensor, tmp_path: Path) -> None:
    net = Net()
    net.body, net.head = nn.Linear(12, 50_000), nn.Linear(50_000, 3)
    extract(net, images, tmp_path)  # 16 MB
    tracemalloc.start()
    extract(net, images[40:44], tmp_path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 5e6


@pytest.mark.parametrize("ending", ["npz", "npy"])
def test_damaged_files_are_as_if_they_were_not_there(images: torch.Tensor, tmp_path: Path, ending: str) -> None:
    net = Net()
    plain = values(extract(net, images, tmp_path)[0])
    (file,) = tmp_path.rglob(f"*.{ending}")
    file.write_bytes(file.read_bytes()[::-1])
    again, many = extract(net, images, tmp_path)
    assert many >= 80
    np.testing.assert_allclose(values(again), plain, atol=1e-5)


def test_progress_counts_images_and_not_batches(images: torch.Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, int]] = []
    bar = "oodshape.features.tensor_batches.progress_bar"
    monkeypatch.setattr(bar, lambda name, total, show: nullcontext(lambda done: seen.append((done, total))))
    extract(Net(), DataLoader(images, batch_size=32), None)
    assert seen == [(32, 80), (64, 80), (80, 80)]
