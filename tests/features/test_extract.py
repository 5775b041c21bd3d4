"""Extraction: the features are the network's, the network runs once, and old features never meet new data."""

from __future__ import annotations

import dataclasses
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from extraction_tools import CHUNK, Counted, digits, entry, extract, same, values, write
from oodshape import Features
from oodshape.core.errors import InputError
from oodshape.features import extraction as extraction
from oodshape.features.extraction import PROBED
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.image_files import ImageFolder
from oodshape.images.sources.image_set import ArraySet, Subset
from oodshape.networks.classifier import Classifier
from oodshape.networks.zoo.digits_nets import load_small_net

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


def test_features_that_float16_cannot_hold_are_refused() -> None:
    with pytest.raises(InputError, match="dtype must be 'float32' or 'float16', got 'float64'"):
        extract(Counted(), digits(), dtype="float64")
    net = nn.Sequential(nn.Flatten(), nn.Linear(256, 4), nn.Linear(4, 8))
    with torch.no_grad():
        net[1].weight.mul_(1e6)
    extract(Counted(net, None), digits())
    with pytest.raises(InputError, match=r'digits, images 0 to 7: features up to .* need dtype="float32"'):
        extract(Counted(net, None), digits(), dtype="float16")


def test_a_second_call_runs_two_images_and_writes_nothing(tmp_path: Path) -> None:
    images, first = digits(), Counted()
    expected = extract(first, images, tmp_path)
    snapshot = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}
    again = Counted(head=None)  # a new process would not know the head either
    same(extract(again, images, tmp_path, batch_size=50), expected)
    assert again.images <= 8  # a few to find the head and to check the network
    assert again.classifier.head_name == "head"  # as after a run
    assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == snapshot


def edited(change: Callable[[Tensor], Tensor], layer: str = "head") -> nn.Module:
    """The same weights, modules and names, another forward pass: what goes into a layer, or comes out at the end."""
    net = load_small_net("convnet")
    if layer:
        net.get_submodule(layer).register_forward_pre_hook(lambda _, args: change(args[0]))
    else:
        net.register_forward_hook(lambda _, args, logits: change(logits))
    return net


def halve(cache: Path) -> None:
    """The cache as a run leaves it that was killed after two chunks."""
    folder = entry(cache)
    for name, row in (("features", 96 * 4), ("predictions", 8)):
        (folder / f"{name}.npy").rename(folder / f"{name}.part")
        os.truncate(folder / f"{name}.part", 128 + 2 * CHUNK * row)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("partial", [False, True])
def test_edited_code_gets_features_of_its_own(tmp_path: Path, partial: bool, dtype: str) -> None:
    extract(Counted(), digits(), tmp_path, dtype=dtype)
    if partial:
        halve(tmp_path)
    net = edited(lambda features: features * 1.01)
    expected = extract(Counted(net), digits(), dtype=dtype)
    same(extract(Counted(net), digits(), tmp_path, dtype=dtype), expected)
    counted = Counted(net)
    same(extract(counted, digits(), tmp_path, dtype=dtype), expected)  # kept in the place of the old ones
    assert counted.images == PROBED


@pytest.mark.parametrize("head", [None, "head"])
@pytest.mark.parametrize("partial", [False, True])
def test_the_head_is_checked_with_a_warm_cache(tmp_path: Path, partial: bool, head: str | None) -> None:
    extract(Counted(), digits(), tmp_path)
    if partial:
        halve(tmp_path)
    classifier = Classifier(edited(lambda logits: logits.softmax(1), layer=""), head)
    with pytest.raises(InputError, match="the logits .*a softmax"):
        Features.extract(classifier, digits(), DIGITS, cache=tmp_path)


def flatter(net: nn.Module) -> nn.Module:
    net.body[2][2] = nn.GELU()  # the same weights, another network
    return net


CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "weight": dict,
    "network": lambda: {"net": flatter(load_small_net("convnet"))},
    "preprocessing": lambda: {"preprocessing": dataclasses.replace(DIGITS, std=(0.321,))},
    "images": lambda: {"images": digits(seed=1)},
    "labels": lambda: {"images": ArraySet("digits", digits().images)},
    "dtype": lambda: {"dtype": "float16"},
    "precision": lambda: {"precision": "bfloat16"},
}


@pytest.mark.parametrize("kind", CHANGES)
def test_whatever_changes_gets_features_of_its_own(tmp_path: Path, kind: str) -> None:
    extract(Counted(), digits(), tmp_path)
    change = CHANGES[kind]()
    counted = Counted(change.pop("net", None), precision=change.pop("precision", "float32"))
    images = change.pop("images", digits())
    if kind == "weight":
        with torch.no_grad():
            next(counted.net.parameters()).view(-1)[0] += 1e-3
    features = extract(counted, images, tmp_path, **change)
    assert counted.images == len(images)
    same(features, extract(counted, images, **change))
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


def test_an_edited_file_gets_features_of_its_own(tmp_path: Path) -> None:
    images = write(tmp_path / "images", digits(10))
    before = extract(Counted(), images, tmp_path / "cache")
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(images.path(3))
    counted = Counted()
    after = extract(counted, images, tmp_path / "cache")  # the same object, no new listing
    assert counted.images == 10
    assert (values(before) != values(after)).any(axis=1).tolist() == [row == 3 for row in range(10)]


def test_files_with_new_times_are_compared_by_content(tmp_path: Path) -> None:
    images = write(tmp_path / "images", digits(10))
    before = extract(Counted(), images, tmp_path / "cache")
    Path(images.path(3)).chmod(0o600)  # another time of change, and nothing else
    copied = ImageFolder(shutil.copytree(tmp_path / "images", tmp_path / "copied"))
    for same_images in (images, copied):
        counted = Counted()
        same(extract(counted, same_images, tmp_path / "cache"), before)
        assert counted.images == PROBED
    status = os.stat(images.path(3))
    Path(images.path(3)).write_bytes(Path(images.path(4)).read_bytes())
    os.utime(images.path(3), ns=(status.st_atime_ns, status.st_mtime_ns))
    after = values(extract(Counted(), images, tmp_path / "cache"))
    assert np.abs(after[3] - after[4]).max() < np.abs(after[3] - values(before)[3]).max() / 10


def test_edited_files_that_come_with_labels_get_features_of_their_own(tmp_path: Path) -> None:
    files = write(tmp_path / "images", digits(10))
    pairs = [(path, 0) for path in files.files]  # no folder, no list of paths: pictures of a user's own
    before = extract(Counted(), pairs, tmp_path / "cache")
    Image.fromarray(np.zeros((16, 16), np.uint8)).save(files.path(3))
    after = extract(Counted(), pairs, tmp_path / "cache")
    assert (values(before) != values(after)).any(axis=1).tolist() == [row == 3 for row in range(10)]


def test_images_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    images = write(tmp_path / "images", digits(20))
    counted = Counted()
    counted.net.register_forward_hook(lambda *_: Path(images.path(0)).touch())
    with pytest.raises(InputError, match="the images of images changed while they were read; run it again"):
        extract(counted, images, tmp_path / "cache", workers=0)
    assert not list((tmp_path / "cache").rglob("*.part"))
