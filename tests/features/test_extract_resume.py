"""A cache of features that was killed, shared, damaged, or out of room."""

from __future__ import annotations

import fcntl
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from extraction_tools import CHUNK, Counted, digits, entry, extract, same, write
from oodshape.core.errors import InputError
from oodshape.features import extraction as extraction
from oodshape.features.disk_cache import CacheEntry
from oodshape.features.extraction import PROBED

pytestmark = pytest.mark.usefixtures("small_chunks", "one_thread")

SCRIPT = """
import hashlib, sys, time, torch
from oodshape import Features
from oodshape.features import extraction as extract
from oodshape.images.sources.image_files import ImageFolder
from oodshape.networks.classifier import Classifier
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.networks.zoo.digits_nets import load_small_net

torch.set_num_threads(1)
extract.CHUNK = 16
images, cache, pause, workers = sys.argv[1:]
net, count = load_small_net("convnet"), 0

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


@pytest.mark.other_process
def test_a_killed_run_resumes_at_the_last_whole_chunk(tmp_path: Path) -> None:
    images = write(tmp_path / "images", digits(150))
    expected = extract(Counted(), images, workers=0)
    cache = tmp_path / "cache"
    with start(images.root, cache, 0.05, 2) as run:
        assert run.stdout.readline() == "ready\n"
        run.stdin.write("\n")
        run.stdin.flush()
        deadline = time.monotonic() + 300
        parts: list[Path] = []
        while not parts or parts[0].stat().st_size < 128 + 3 * CHUNK * 8:
            assert time.monotonic() < deadline
            time.sleep(0.01)
            parts = list(cache.rglob("predictions.part"))
        children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
        assert not children.exists() or children.read_text() == ""  # none that could outlive it
        run.send_signal(signal.SIGKILL)
        run.wait()
    assert run.returncode == -signal.SIGKILL
    assert not list(cache.rglob("*.npy"))
    folder = entry(cache)
    with (folder / "lock").open("ab") as lock:  # free at once
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


@pytest.mark.other_process
def test_two_processes_share_a_cache(tmp_path: Path) -> None:
    images = write(tmp_path / "images", digits(60))
    runs = [start(images.root, tmp_path / "cache", 0.02, 0) for _ in range(2)]
    for run in runs:
        assert run.stdout.readline() == "ready\n"
    for run in runs:
        run.stdin.write("\n")
        run.stdin.flush()
    answers = [run.communicate(timeout=500)[0].split() for run in runs]
    assert 60 <= sum(int(count) for count, _ in answers) <= 60 + 8  # each image once, in one of the two
    assert answers[0][1] == answers[1][1]
    counted = Counted()
    same(extract(counted, images, tmp_path / "cache"), extract(Counted(), images))
    assert counted.images == PROBED


def test_a_full_disk_is_one_clear_error_and_the_run_resumes(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match=r"cache must be a folder, but .*file is a file"):
        extract(Counted(), digits(), tmp_path / "file")
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


VALUES = np.random.default_rng(0).normal(size=(40, 6)).astype(np.float32)
CLASSES = np.arange(40) % 4


def filled(folder: Path, rows: int = 40) -> CacheEntry:
    folder.mkdir(exist_ok=True)
    entry = CacheEntry(folder, VALUES.shape, 4, "float32")  # type: ignore[arg-type]
    for first in range(0, rows, 10):
        entry.put(first, VALUES[first : first + 10], CLASSES[first : first + 10])
    if rows == 40:
        entry.finish()
    return entry


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("name", ["features.npy", "predictions.npy", "rows.sums"])
def test_a_changed_byte_makes_a_cache_unusable(tmp_path: Path, name: str) -> None:
    entry = filled(tmp_path)
    assert entry.load() is not None
    flip(tmp_path / name, (tmp_path / name).stat().st_size - 3)
    assert entry.load() is None


def test_a_run_goes_on_before_the_first_chunk_that_changed(tmp_path: Path) -> None:
    entry = filled(tmp_path, 30)
    assert entry.start(10) == 30
    flip(tmp_path / "features.part", 128 + 15 * 24)
    assert entry.start(10) == 10
    for first in (10, 20, 30):
        entry.put(first, VALUES[first : first + 10], CLASSES[first : first + 10])
    entry.finish()
    kept = entry.load()
    assert kept is not None
    np.testing.assert_array_equal(kept[0], VALUES)


def test_rows_that_no_checksum_covers_yet_are_made_again(tmp_path: Path) -> None:
    entry = filled(tmp_path, 20)
    with (tmp_path / "features.part").open("ab") as file:
        file.write(bytes(10 * 24))  # killed before the checksum
    with (tmp_path / "predictions.part").open("ab") as file:
        file.write(bytes(10 * 8))
    assert entry.start(10) == 20
