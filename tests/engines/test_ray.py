"""Ray does what one process does; a worker or a driver that dies costs time only."""

from __future__ import annotations

import csv
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import call
from oodshape import Guard, InputError
from oodshape.core.options import RunOptions
from oodshape.engines.ray import ActorPool, fit_guard, score
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.sources.image_set import Subset
from oodshape.images.sources.open_images import open_images
from oodshape.networks.loading import open_model

pytest.importorskip("ray", reason="need Ray (make test-ray)")
pytest.importorskip("pyarrow", reason="shards of scores are Parquet")

MODEL = "zoo:digits-convnet"
RAY = ("--engine", "ray:1")
pytestmark = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


def assert_same_scores(found: Guard, wanted: Guard, images: Any) -> None:
    """Scores to 1e-5, and decisions where the score is not that close to the threshold."""
    for row, other in zip(*(each.score(images, MODEL, progress=False) for each in (found, wanted)), strict=True):
        assert row.label == other.label
        assert row.score == pytest.approx(other.score, rel=1e-5, abs=1e-5)
        assert row.accepted == other.accepted or abs(row.score - wanted.detector.threshold) < 2e-5


def test_a_fit_on_the_command_line_gives_the_guard_of_one_process(cluster: str, digits: Path, tmp_path: Path) -> None:
    words = ["--model", MODEL, "--images", str(digits / "train"), "--calibrate", str(digits / "val")]
    words += ["--method", "knn", "--batch-size", "16", "--limit", "60"]
    runs = [
        call("fit", *words, "--out", "ray.safetensors", *RAY, cwd=tmp_path),
        call("fit", *words, "--out", "local.safetensors", "--cache", "none", cwd=tmp_path),
    ]
    assert [run.returncode for run in runs] == [0, 0], runs
    assert "images per second, 0 failed" in runs[0].stdout.splitlines()[0]
    guards = [Guard.load(tmp_path / f"{name}.safetensors") for name in ("ray", "local")]
    mine, theirs = (guard.detector for guard in guards)
    assert mine.n_train == theirs.n_train == 60
    assert mine.calibration is not None
    assert theirs.calibration is not None
    assert len(mine.calibration) == 60  # a limit is one of both
    np.testing.assert_allclose(mine.calibration, theirs.calibration, rtol=1e-5, atol=1e-5)
    assert guards[0].about.classes == guards[1].about.classes
    assert guards[0].guarantee == guards[1].guarantee
    assert_same_scores(*guards, digits / "letters")


ONE = ActorPool(actors=1)
SMALL, FEW = (RunOptions(batch_size=size, progress=False) for size in (4, 16))


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
    train, held = (Subset(load_digits_sets()[name], range(200)) for name in ("train", "test"))
    killed, driver = tmp_path / "killed", os.getpid()

    def kill(index: int) -> None:
        if index == 120 and os.getpid() != driver and not killed.exists():  # in the third shard: two parts are made
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    guard, _ = fit_guard(open_model(MODEL), around(train, kill), held, FEW, method="knn", pool=ONE, shards=4)
    assert killed.exists()
    alone = Guard.fit(MODEL, images=train, calibrate=held, method="knn", **vars(FEW))
    assert guard.detector.n_train == alone.detector.n_train == 200
    letters = Subset(load_digits_sets()["letters"], range(40))
    assert_same_scores(guard, alone, letters)


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
    listing = open_images(str(digits / "test"))
    gone = Path(listing.files[-1])
    gone.unlink()
    # at once: a worker of the killed driver may still be at a shard
    tally, speed = score(Guard.load(digits / "guard.safetensors"), listing, open_model(MODEL), out, SMALL, pool=ONE)
    assert tally.images == 90
    assert tally.unreadable == 1
    assert tally.resumed >= 4 * len(done)
    rows = out.read_text().splitlines()
    assert rows[-1].startswith(f"{gone},,,,,")
    assert "cannot be read" in rows[-1]
    assert speed.endswith(" images per second, 1 failed")
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

    images = around(Subset(load_digits_sets()["train"], range(200)), large)
    with pytest.raises(InputError, match="^a worker failed: .*; if memory ran out, take fewer actors") as error:
        fit_guard(open_model(MODEL), images, run=FEW, method="energy", pool=ONE, shards=1)
    assert "\n" not in str(error.value)


def on_node(images: Any, seen: Path, dies: str = "") -> Any:
    """Images that note the nodes on which they are read: none goes on before two are there, the one that dies never."""

    def note(_: int) -> None:
        import ray

        if os.getpid() != driver:
            node = ray.get_runtime_context().get_node_id()
            (seen / node).touch()
            while node == dies or len(list(seen.iterdir())) < 2:
                time.sleep(0.05)

    driver = os.getpid()
    seen.mkdir()
    return around(images, note)


def test_two_nodes_give_the_guard_of_one_process(nodes: Any, tmp_path: Path) -> None:
    train, held = (Subset(load_digits_sets()[name], range(200)) for name in ("train", "test"))
    images = on_node(train, tmp_path / "seen")
    guard, _ = fit_guard(open_model(MODEL), images, held, FEW, method="knn", pool=ActorPool(actors=2), shards=6)
    alone = Guard.fit(MODEL, images=train, calibrate=held, method="knn", **vars(FEW))
    assert guard.detector.n_train == alone.detector.n_train == 200
    assert_same_scores(guard, alone, held)
    assert len(list((tmp_path / "seen").iterdir())) == 2


def test_a_node_that_dies_costs_time_only(nodes: Any, third: Any, digits: Path, tmp_path: Path) -> None:
    """It is killed at an image, without a word to the others: its shards are done elsewhere, and no row is lost."""
    seen, held = tmp_path / "seen", Subset(load_digits_sets()["test"], range(90))

    def kill() -> None:
        while not (seen / third.node_id).exists():
            time.sleep(0.05)
        nodes.remove_node(third, allow_graceful=False)

    guard, images = Guard.load(digits / "guard.safetensors"), on_node(held, seen, third.node_id)
    killer = threading.Thread(target=kill)
    killer.start()
    tally, _ = score(guard, images, open_model(MODEL), tmp_path / "s.csv", SMALL, pool=ActorPool(actors=3))
    killer.join()
    assert (tally.images, tally.unreadable) == (90, 0)
    with (tmp_path / "s.csv").open() as file:
        found = [float(row["score"]) for row in csv.DictReader(file)]
    wanted = [row.score for row in guard.score(held, MODEL, progress=False, batch_size=4)]
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


def test_images_come_from_an_s3_server(nodes: Any, s3: Any, digits: Path, tmp_path: Path) -> None:
    guard = Guard.load(digits / "guard.safetensors")
    s3.create_bucket(Bucket="digits")
    for path in sorted((digits / "letters").iterdir()):
        s3.upload_file(str(path), "digits", f"new/{path.name}")
    tally, _ = score(guard, "s3://digits/new", open_model(MODEL), tmp_path / "s.csv", SMALL, pool=ActorPool(actors=2))
    assert (tally.images, tally.unreadable) == (10, 0)
    wanted = list(guard.score(digits / "letters", MODEL, progress=False, batch_size=4))
    assert [row.accepted for row in wanted].count(True) == tally.accepted
