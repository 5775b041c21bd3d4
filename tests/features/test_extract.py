"""Extraction: the network runs once, whatever happens in between, and old features never meet new data."""

from __future__ import annotations

import dataclasses
import fcntl
import io
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import load_file
from torch import Tensor, nn

from oodshape import Features
from oodshape.core.errors import InputError
from oodshape.features import disk_cache as disk
from oodshape.features import extraction as extraction
from oodshape.features.extraction import PROBED
from oodshape.images.folders import ImageFolder
from oodshape.images.image_set import ArraySet, Subset
from oodshape.images.prefetch import default_workers
from oodshape.images.preprocessing import DIGITS, IMAGENET
from oodshape.networks.classifier import Classifier
from oodshape.networks.zoo.digits_nets import small_net

CHUNK = 16


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Chunks of 16 rows, and one thread: tests run side by side."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    monkeypatch.setattr(extraction, "CHUNK", CHUNK)
    yield
    torch.set_num_threads(threads)


def digits(n: int = 50, seed: int = 0) -> ArraySet:
    rng = np.random.default_rng(seed)
    return ArraySet("digits", rng.integers(0, 256, (n, 16, 16)).astype(np.uint8), rng.integers(0, 8, n))


def write(folder: Path, images: ArraySet) -> ImageFolder:
    """The same images as files, in class folders."""
    for row, (image, label) in enumerate(zip(images.images, images.labels, strict=True)):
        path = folder / f"{label}" / f"{row:04}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(image).save(path)
    return ImageFolder(folder)


class Counted:
    """A classifier, and how many images went through its network."""

    def __init__(self, net: nn.Module | None = None, head: str | None = "head") -> None:
        self.net = small_net("convnet") if net is None else net
        self.images = 0
        self.net.register_forward_pre_hook(self._count)
        self.classifier = Classifier(self.net, head)

    def _count(self, net: nn.Module, args: tuple[Tensor, ...]) -> None:
        self.images += len(args[0])


def extract(counted: Counted, images: Any, cache: Path | None = None, **settings: Any) -> Features:
    settings = {"batch_size": 8, "preprocessing": DIGITS, **settings}
    return Features.extract(counted.classifier, images, cache=cache, **settings)


def values(features: Features) -> np.ndarray:
    return np.concatenate([chunk.numpy() for _, chunk in features.chunks()])


def same(left: Features, right: Features) -> None:
    """Bit for bit the same."""
    assert values(left).dtype == values(right).dtype
    np.testing.assert_array_equal(values(left), values(right))
    assert torch.equal(left.predictions, right.predictions)
    assert torch.equal(left.labels, right.labels)
    assert left.head.fingerprint == right.head.fingerprint


def entry(cache: Path) -> Path:
    """The only folder of a cache."""
    (folder,) = (path for path in cache.iterdir() if path.is_dir())
    return folder


# The features are the network's.


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


def test_workers_are_for_files_only(tmp_path: Path) -> None:
    arrays = digits(12)
    files = write(tmp_path, arrays)
    assert default_workers(arrays, 9) == default_workers(Subset(arrays, [0]), 9) == default_workers(files, 1) == 0
    assert default_workers(files, 9) == default_workers(Subset(files, [0]), 9) == min(4, len(os.sched_getaffinity(0)))


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


# The network runs once.


def test_a_second_call_runs_two_images_and_writes_nothing(tmp_path: Path) -> None:
    images, first = digits(), Counted()
    expected = extract(first, images, tmp_path)
    snapshot = {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]}
    again = Counted(head=None)  # a new process would not know the head either
    same(extract(again, images, tmp_path, batch_size=50), expected)
    assert again.images == 2 + PROBED  # one image to find the head, and once more to read it
    assert again.classifier.head_name == "head"  # as after a run
    assert {path: path.stat().st_mtime_ns for path in [tmp_path, *tmp_path.rglob("*")]} == snapshot


def test_an_unknown_head_is_found_with_one_image(tmp_path: Path) -> None:
    counted = Counted(head=None)
    same(extract(counted, digits(), tmp_path), extract(Counted(), digits()))
    assert counted.images == 50 + 2  # one image to find the head, and once more to read it


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
    counted = Counted(edited(lambda logits: logits.softmax(1), layer=""), head)
    with pytest.raises(InputError, match="the logits .*a softmax"):
        extract(counted, digits(), tmp_path)


def test_images_that_could_not_be_read_are_not_compared(tmp_path: Path) -> None:
    images, cache = write(tmp_path / "images", digits(12)), tmp_path / "cache"
    images.path(0).write_bytes(b"no image")
    nets = {"old": small_net("convnet"), "new": edited(lambda features: features * 1.01)}
    for name, ran in (("old", 11), ("old", PROBED), ("new", 1 + 1 + 11), ("new", PROBED)):
        counted = Counted(nets[name])
        run = extraction.Extraction(counted.classifier, images, DIGITS, workers=0, skip=True)
        features, read = run.readable(cache)
        assert counted.images == ran
        assert read.tolist() == list(range(1, 12))
        wanted = extraction.Extraction(counted.classifier, images, DIGITS, workers=0, skip=True).readable(None)[0]
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


def test_images_that_change_while_they_are_read_are_refused(tmp_path: Path) -> None:
    images = write(tmp_path / "images", digits(20))
    counted = Counted()
    counted.net.register_forward_hook(lambda *_: images.path(0).touch())
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


# Killed, shared, damaged.

SCRIPT = """
import hashlib, sys, time, torch
from oodshape import Features
from oodshape.features import extraction as extract
from oodshape.images.folders import ImageFolder
from oodshape.networks.classifier import Classifier
from oodshape.images.preprocessing import DIGITS
from oodshape.networks.zoo.digits_nets import small_net

torch.set_num_threads(1)
extract.CHUNK = 16
images, cache, pause, workers = sys.argv[1:]
net, count = small_net("convnet"), 0

def slow(net, args):
    global count
    count += len(args[0])
    time.sleep(float(pause))

net.register_forward_pre_hook(slow)
data, classifier = ImageFolder(images), Classifier(net, "head")
print("ready", flush=True)
sys.stdin.readline()
f = Features.extract(classifier, data, DIGITS, cache=cache, batch_size=8, workers=int(workers))
print(count, hashlib.sha256(f._values.tobytes() + f.predictions.numpy().tobytes()).hexdigest())
"""


def start(*arguments: Any) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", SCRIPT, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def test_a_killed_run_resumes_at_the_last_whole_chunk(tmp_path: Path) -> None:
    images = write(tmp_path / "images", digits(150))
    expected = extract(Counted(), images, workers=0)
    cache = tmp_path / "cache"
    with start(images.root, cache, 0.05, 2) as run:
        assert run.stdout.readline() == "ready\n"
        run.stdin.write("\n")
        run.stdin.flush()
        deadline = time.monotonic() + 60
        parts: list[Path] = []
        while not parts or parts[0].stat().st_size < 128 + 3 * CHUNK * 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            parts = list(cache.rglob("predictions.part"))
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert run.returncode == -signal.SIGKILL
    assert not list(cache.rglob("*.npy"))
    folder = entry(cache)
    with (folder / "lock").open("ab") as lock:  # free at once, though orphaned workers may still live
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    done = (parts[0].stat().st_size - 128) // 8
    assert 3 * CHUNK <= done < 150
    assert done % CHUNK == 0
    with (folder / "features.part").open("ab") as file:
        file.write(b"x" * 1000)  # and a chunk that was cut off in the middle
    counted = Counted()
    features = extract(counted, images, cache, workers=0)
    assert counted.images == 150 - done + PROBED
    same(features, expected)
    assert not list(cache.rglob("*.part"))


def test_two_processes_share_a_cache(tmp_path: Path) -> None:
    images = write(tmp_path / "images", digits(60))
    runs = [start(images.root, tmp_path / "cache", 0.02, 0) for _ in range(2)]
    for run in runs:
        assert run.stdout.readline() == "ready\n"
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    answers = [run.communicate(timeout=60)[0].split() for run in runs]
    assert sum(int(count) for count, _ in answers) == 60 + PROBED  # each image once, in one of the two
    assert answers[0][1] == answers[1][1]
    counted = Counted()
    same(extract(counted, images, tmp_path / "cache"), extract(Counted(), images))
    assert counted.images == PROBED


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 3)


def lengthen(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b"abc")


def empty(path: Path) -> None:
    path.write_bytes(b"")


def other(path: Path) -> None:
    np.save(path, np.zeros((3, 3)))


def garbage(path: Path) -> None:
    path.write_bytes(b"PK\x05\x06" + bytes(18))  # an empty zip file, which numpy opens too


def wild(path: Path) -> None:
    array = np.load(path)
    np.save(path, np.full_like(array, 99))


@pytest.mark.parametrize("damage", [cut, lengthen, empty, other, garbage, Path.unlink])
@pytest.mark.parametrize("name", ["features.npy", "predictions.npy"])
def test_damaged_files_are_made_again(tmp_path: Path, name: str, damage: Callable[[Path], None]) -> None:
    expected = extract(Counted(), digits(), tmp_path)
    kept = values(expected).copy()
    damage(entry(tmp_path) / name)
    counted = Counted()
    again = extract(counted, digits(), tmp_path)
    assert counted.images == 50
    np.testing.assert_array_equal(values(again), kept)
    assert extract(counted, digits(), tmp_path).predictions_known
    assert counted.images == 50 + PROBED


def test_predictions_of_classes_that_are_not_there_are_made_again(tmp_path: Path) -> None:
    extract(Counted(), digits(), tmp_path)
    wild(entry(tmp_path) / "predictions.npy")
    assert int(extract(Counted(), digits(), tmp_path).predictions.max()) < 8


@pytest.mark.parametrize("keep", [0, 60, 128, 128 + CHUNK * 96 * 4 + 5])
def test_a_damaged_part_is_not_continued(tmp_path: Path, keep: int) -> None:
    expected = extract(Counted(), digits(), tmp_path)
    folder = entry(tmp_path)
    kept = values(expected).copy()
    for name in ("features", "predictions"):
        (folder / f"{name}.npy").rename(folder / f"{name}.part")
    os.truncate(folder / "features.part", keep)
    counted = Counted()
    np.testing.assert_array_equal(values(extract(counted, digits(), tmp_path)), kept)
    assert counted.images == (50 - CHUNK + PROBED if keep > 128 else 50)


@pytest.mark.parametrize("both", [True, False])
def test_all_rows_but_not_their_names_need_two_images(tmp_path: Path, both: bool) -> None:
    expected = extract(Counted(), digits(), tmp_path)
    folder = entry(tmp_path)
    (folder / "features.npy").rename(folder / "features.part")
    if both:
        (folder / "predictions.npy").rename(folder / "predictions.part")
    counted = Counted()
    same(extract(counted, digits(), tmp_path), expected)
    assert counted.images == PROBED


# What cannot work is said.


def test_a_full_disk_is_one_clear_error_and_the_run_resumes(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (128 + 2 * CHUNK * 96 * 4 + 100, hard))
    try:
        with pytest.raises(InputError, match=r"cannot keep features in .*: File too large; check its space"):
            extract(Counted(), digits(), tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    counted = Counted()
    same(extract(counted, digits(), tmp_path), extract(Counted(), digits()))
    assert counted.images == 50 - 2 * CHUNK + PROBED


def test_too_little_room_is_said_before_the_network_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(10**9, 10**9, 10_000))
    counted = Counted()
    with pytest.raises(InputError, match=r"the features need 0.0 GB more in .* 0.0 GB are free; make room"):
        extract(counted, digits(), tmp_path)
    assert counted.images == 0


def test_a_cache_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cache must be a folder, but .*file is a file"):
        extract(Counted(), digits(), tmp_path / "file")
    with pytest.raises(InputError, match=r"cannot keep features in .*file/below/\w+: Not a directory"):
        extract(Counted(), digits(), tmp_path / "file" / "below")


@pytest.mark.parametrize("workers", [0, 2])
def test_a_broken_file_is_named_and_what_came_before_is_kept(tmp_path: Path, workers: int) -> None:
    images = write(tmp_path / "images", digits(40))
    images.path(35).write_bytes(images.path(35).read_bytes()[:-40])
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


# Progress.


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("progress", "shown"), [(None, True), (False, False)])
def test_progress_is_shown_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, progress: bool | None, shown: bool
) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    extract(Counted(), digits(), tmp_path, progress=progress)
    text = terminal.getvalue()
    assert ("50/50" in text) == ("images/s" in text) == ("digits" in text) == shown


def test_nothing_is_shown_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    extract(Counted(), digits(), progress=True)
    assert capfd.readouterr() == ("", "")
