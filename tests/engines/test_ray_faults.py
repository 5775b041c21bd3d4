"""A worker or a driver that dies costs time only; what cannot be mended ends in one line."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from oodshape import Guard, InputError
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.sources.image_set import Subset

pytest.importorskip("ray", reason="need Ray (make test-ray)")
pytest.importorskip("pyarrow", reason="shards of scores are Parquet")
from oodshape.engines import actors
from oodshape.engines.ray import Pool, fit_guard, score
from oodshape.images.sources.listing import image_set

MODEL = "zoo:digits-convnet"
ONE = Pool(actors=1)
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def around(images: Any, act: Any) -> Any:
    """The images, with something that happens when one of them is read; pickled by value, as its class is local."""

    class Around:
        name, labels, fingerprint, identities = images.name, images.labels, "around", images.identities

        def __len__(self) -> int:
            return len(self.labels)

        def __getitem__(self, index: int) -> Any:
            return images[index] if (other := act(index)) is None else other

    return Around()


def test_a_worker_that_is_killed_costs_time_only(cluster: str, tmp_path: Path) -> None:
    train, held = (Subset(digits_sets()[name], range(200)) for name in ("train", "test"))
    killed, driver = tmp_path / "killed", os.getpid()

    def kill(index: int) -> None:
        if index == 120 and os.getpid() != driver and not killed.exists():  # in the third shard: two parts are made
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    how: dict[str, Any] = {"calibrate": held, "method": "knn", "progress": False, "batch_size": 16}
    guard = fit_guard(MODEL, images=around(train, kill), pool=ONE, shards=4, **how)
    assert killed.exists()
    alone = Guard.fit(MODEL, images=train, **how)
    assert guard.detector.n_train == alone.detector.n_train == 200
    letters = Subset(digits_sets()["letters"], range(40))
    for row, other in zip(*(each.score(letters, MODEL, progress=False) for each in (guard, alone)), strict=True):
        assert row.score == pytest.approx(other.score, rel=1e-5, abs=1e-5)
        assert row.accepted == other.accepted or abs(row.score - alone.detector.threshold) < 2e-5


def test_a_killed_driver_resumes_and_a_vanished_file_is_a_row(cluster: str, digits: Path, tmp_path: Path) -> None:
    out, folder = tmp_path / "scores.csv", tmp_path / "scores.csv.shards"
    words = ["--guard", str(digits / "guard.safetensors"), "--model", MODEL, "--images", str(digits / "test")]
    words += ["--batch-size", "4", "--out", str(out), "--engine", "ray:1", "--quiet"]
    run = subprocess.Popen(
        [sys.executable, "-c", "from oodshape.cli import main; main()", "score", *words],
        env=os.environ | {"RAY_ADDRESS": cluster},
    )
    while run.poll() is None and not list(folder.glob("*.parquet")):
        time.sleep(0.005)
    run.kill()
    run.wait()
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    assert done, "the driver ended before any shard was scored"
    assert not out.exists(), "the driver ended before it was killed"
    listing = image_set(str(digits / "test"))
    gone = Path(listing.files[-1])
    gone.unlink()
    # at once: a worker of the killed driver may still be at a shard
    tally, took = score(
        Guard.load(digits / "guard.safetensors"), listing, MODEL, out, batch_size=4, pool=ONE, progress=False
    )
    assert tally.images == 90
    assert tally.unreadable == took.failed == 1
    assert tally.resumed >= 4 * len(done)
    assert took.images == 90 - tally.resumed  # no image was scored twice
    rows = out.read_text().splitlines()
    assert rows[-1].startswith(f"{gone},,,,,")
    assert "cannot be read" in rows[-1]
    assert "failed; workers spent read" in took.line()
    assert not folder.exists()


def test_a_worker_without_memory_is_one_line(cluster: str) -> None:
    """The system itself refuses: a worker may take 1 GB more than it has, and meets images of 4 GB."""
    driver = os.getpid()

    def large(index: int) -> Any:
        if os.getpid() == driver or index < 20:
            return None
        taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (taken + (1 << 30), resource.RLIM_INFINITY))
        return np.broadcast_to(np.uint8(7), (40_000, 40_000, 3))

    images = around(Subset(digits_sets()["train"], range(200)), large)
    with pytest.raises(InputError, match="^a worker ran out of memory: take fewer actors") as error:
        fit_guard(MODEL, images=images, method="energy", pool=ONE, shards=1, progress=False)
    assert "\n" not in str(error.value)


def test_a_worker_that_always_dies_is_one_line(cluster: str, monkeypatch: pytest.MonkeyPatch) -> None:
    driver = os.getpid()

    def kill(index: int) -> None:
        if os.getpid() != driver:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(actors, "AGAIN", 0)  # each time takes a new process
    images = around(Subset(digits_sets()["train"], range(200)), kill)
    with pytest.raises(InputError, match="^a worker died 1 times on one shard, often for want of memory") as error:
        fit_guard(MODEL, images=images, method="energy", pool=ONE, shards=1, progress=False)
    assert "\n" not in str(error.value)
