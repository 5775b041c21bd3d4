"""The network runs once, and old features never meet new data or another network."""

from __future__ import annotations

import dataclasses
import json
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
from oodshape.core.options import RunOptions
from oodshape.features import extraction as extraction
from oodshape.features.extraction import PROBED
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.folders import ImageFolder
from oodshape.images.sources.image_set import ArraySet
from oodshape.networks.classifier import Classifier
from oodshape.networks.zoo.digits_nets import small_net

pytestmark = pytest.mark.usefixtures("small_chunks", "one_thread")


def test_a_second_call_runs_two_images_and_writes_nothing(tmp_path: Path) -> None:
    images, first = digits(), Counted()
    expected = extract(first, images, tmp_path)
    snapshot = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}
    again = Counted(head=None)  # a new process would not know the head either
    same(extract(again, images, tmp_path, batch_size=50), expected)
    assert again.images <= 8  # a few to find the head and to check the network
    assert again.classifier.head_name == "head"  # as after a run
    assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == snapshot


def test_an_unknown_head_is_found_with_one_image(tmp_path: Path) -> None:
    counted = Counted(head=None)
    same(extract(counted, digits(), tmp_path), extract(Counted(), digits()))
    assert 50 + 2 <= counted.images <= 50 + 8  # a few to find the head and to check the network


def edited(change: Callable[[Tensor], Tensor], layer: str = "head") -> nn.Module:
    """The same weights, modules and names, another forward pass: what goes into a layer, or comes out at the end."""
    net = small_net("convnet")
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


def test_images_that_could_not_be_read_are_not_compared(tmp_path: Path) -> None:
    images, cache = write(tmp_path / "images", digits(12)), tmp_path / "cache"
    Path(images.path(0)).write_bytes(b"no image")
    nets = {"old": small_net("convnet"), "new": edited(lambda features: features * 1.01)}
    for name, ran in (("old", 11), ("old", PROBED), ("new", 1 + 1 + 11), ("new", PROBED)):
        counted = Counted(nets[name])
        run = extraction.Extraction(counted.classifier, images, DIGITS, run=RunOptions(workers=0), skip=True)
        features, read = Features.extracted(run, cache)
        assert counted.images == ran
        assert read.tolist() == [False] + [True] * 11
        again = extraction.Extraction(counted.classifier, images, DIGITS, run=RunOptions(workers=0), skip=True)
        wanted = Features.extracted(again, None)[0]
        same(features, wanted)


def flatter(net: nn.Module) -> nn.Module:
    net.body[2][2] = nn.GELU()  # the same weights, another network
    return net


class TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(256, 8), nn.Linear(8, 8)
        nn.init.eye_(self.second.weight)
        nn.init.zeros_(self.second.bias)

    def forward(self, images: Tensor) -> Tensor:
        return self.second(self.first(images.flatten(1)))


CHANGES: dict[str, Callable[[], dict[str, Any]]] = {
    "weight": dict,
    "network": lambda: {"net": flatter(small_net("convnet"))},
    "preprocessing": lambda: {"preprocessing": dataclasses.replace(DIGITS, std=(0.321,))},
    "images": lambda: {"images": digits(seed=1)},
    "labels": lambda: {"images": ArraySet("digits", digits().images)},
    "dtype": lambda: {"dtype": "float16"},
}


@pytest.mark.parametrize("kind", CHANGES)
def test_whatever_changes_gets_features_of_its_own(tmp_path: Path, kind: str) -> None:
    extract(Counted(), digits(), tmp_path)
    change = CHANGES[kind]()
    counted, images = Counted(change.pop("net", None)), change.pop("images", digits())
    if kind == "weight":
        with torch.no_grad():
            next(counted.net.parameters()).view(-1)[0] += 1e-3
    features = extract(counted, images, tmp_path, **change)
    assert counted.images == len(images)
    same(features, extract(counted, images, **change))
    assert len([path for path in tmp_path.iterdir() if path.is_dir()]) == 2


def test_another_head_of_the_same_network_gets_features_of_its_own(tmp_path: Path) -> None:
    net = TwoHeads()
    first, second = Classifier(net, "first"), Classifier(net, "second")
    widths = [Features.extract(c, digits(), DIGITS, cache=tmp_path).width for c in (first, second, first)]
    assert widths == [256, 8, 256]


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


def test_the_meta_file_says_what_the_folder_holds(tmp_path: Path) -> None:
    extract(Counted(), digits(), tmp_path)
    meta = json.loads((entry(tmp_path) / "meta.json").read_text())
    assert meta["images"] == "digits"
    assert meta["number"] == 50
    assert meta["classifier"] == "Classifier(SmallConvNet, head='head')"
    assert meta["preprocessing"] == repr(DIGITS)
    assert meta["versions"]["torch"] == torch.__version__
