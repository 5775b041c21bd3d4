"""Extraction: the features are the network's, and what cannot work is said."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from extraction_tools import CHUNK, Counted, digits, entry, extract, same, values, write
from oodshape.core.errors import InputError
from oodshape.features import extraction as extraction
from oodshape.images.decode.preprocessing import DIGITS, IMAGENET
from oodshape.images.sources.folders import ImageFolder
from oodshape.images.sources.image_set import Subset

pytestmark = pytest.mark.usefixtures("small_chunks", "one_thread")


@pytest.mark.parametrize("n", [1, 7, 8, 16, 33, 50])
def test_features_are_what_the_classifier_gives(tmp_path: Path, n: int) -> None:
    counted, images = Counted(), digits(n)
    in_memory = extract(counted, images)
    outputs = counted.classifier(DIGITS.batch(images.images))
    torch.testing.assert_close(torch.from_numpy(values(in_memory)), outputs.features)
    assert torch.equal(in_memory.predictions, outputs.logits.argmax(1))
    assert in_memory.labels.tolist() == images.labels.tolist()
    assert in_memory.predictions_known
    assert in_memory.head is counted.classifier.head
    counted.images = 0
    on_disk = extract(counted, images, tmp_path)
    assert counted.images == n
    same(on_disk, in_memory)
    assert isinstance(on_disk._values, np.memmap)
    assert not on_disk._values.flags.writeable


def test_half_precision_keeps_the_networks_predictions(tmp_path: Path) -> None:
    images = digits()
    whole = extract(Counted(), images)
    half = extract(Counted(), images, tmp_path, dtype="float16")
    assert half.half
    np.testing.assert_array_equal(values(half), values(whole).astype(np.float16))
    assert torch.equal(half.predictions, whole.predictions)
    same(extract(Counted(), images, dtype="float16"), half)


def test_files_arrays_and_workers_give_the_same(tmp_path: Path) -> None:
    arrays = digits(40)
    files = write(tmp_path / "images", arrays)
    order = [int(Path(file).stem) for file in files.files]
    expected = extract(Counted(), Subset(arrays, order))
    counted, before = Counted(), torch.get_rng_state()
    for workers in (0, 1, 3):
        same(extract(counted, files, workers=workers), expected)
    assert torch.equal(torch.get_rng_state(), before)


def test_deit_tiny_on_real_images(shared: Path, tmp_path: Path, torchvision_ops: object) -> None:
    timm = pytest.importorskip("timm")
    net = timm.create_model("deit_tiny_patch16_224", pretrained=False)
    weights = load_file(shared / "weights/deit_tiny_patch16_224.fp16.safetensors")
    net.load_state_dict({key: value.float() for key, value in weights.items()})
    rows = np.arange(0, 1000, 42)
    images = Subset(ImageFolder(shared / "data/imagenet/val"), rows.tolist())
    cropped = dataclasses.replace(IMAGENET, resize=None)  # these files are 224 x 224 already
    features = extract(Counted(net, None), images, tmp_path, preprocessing=cropped, dtype="float16")
    stored = np.load(shared / "features/imagenet_deit_tiny/val.npz")  # of two images per class, here is the first
    np.testing.assert_allclose(values(features), stored["features"][2 * rows], rtol=0, atol=0.02)
    assert features.labels.tolist() == rows.tolist()
    assert features.accuracy > 0.5


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_is_named_and_what_came_before_is_kept(tmp_path: Path, workers: int) -> None:
    images = write(tmp_path / "images", digits(40))
    Path(images.path(35)).write_bytes(Path(images.path(35)).read_bytes()[:-40])
    with pytest.raises(InputError) as caught:
        extract(Counted(), images, tmp_path / "cache", workers=workers)
    message = str(caught.value)
    assert message.startswith(f"images, images 32 to 39: {images.path(35)} cannot be read as an image (")
    assert "Traceback" not in message
    assert "\n" not in message
    assert (entry(tmp_path / "cache") / "features.part").stat().st_size == 128 + 2 * CHUNK * 96 * 4


def test_images_of_different_sizes_are_refused(tmp_path: Path) -> None:
    images = write(tmp_path, digits(8))
    Image.new("L", (20, 17)).save(images.path(5))
    with pytest.raises(InputError, match=r"images 0 and 5 of a batch have the sizes 16 x 16 and 20 x 17"):
        extract(Counted(), images)


def test_values_that_are_not_finite_name_their_images() -> None:
    images = digits(20)

    def spoil(module: nn.Module, args: tuple[Tensor, ...], output: Tensor) -> Tensor:
        wrong = (args[0] == args[0].amax((1, 2, 3), keepdim=True)).sum((1, 2, 3)) == 256  # an image of one value
        return torch.where(wrong[:, None, None, None], float("nan"), output)

    counted = Counted()
    counted.net.stem.register_forward_hook(spoil)
    extract(counted, images)
    images.images[13] = 7
    with pytest.raises(
        InputError, match=r"digits, images 8 to 15: the logits of 1 of 8 images \(first: row 5\) hold NaN"
    ):
        extract(counted, images)


def test_features_that_float16_cannot_hold_are_refused() -> None:
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 4), nn.Linear(4, 8))
    with torch.no_grad():
        net[1].weight.mul_(1e6)
    extract(Counted(net, None), digits())
    with pytest.raises(InputError, match=r'digits, images 0 to 7: features up to .* need dtype="float32"'):
        extract(Counted(net, None), digits(), dtype="float16")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dtype": "float64"}, "dtype must be 'float32' or 'float16', got 'float64'"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"workers": -1}, "workers must be 0 .* or more, got -1"),
    ],
)
def test_bad_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        extract(Counted(), digits(), **settings)
