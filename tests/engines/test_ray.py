"""Ray does what one process does, and a worker or a driver that dies costs time only. One local cluster for all."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from folders_of_digits import write_digits
from oodshape import Guard, InputError
from oodshape.images.digits import digits_sets
from oodshape.images.image_set import Subset

ray = pytest.importorskip("ray", reason="the engine needs Ray: pip install 'oodshape[ray]'")
pytest.importorskip("pyarrow", reason="shards of scores are Parquet")
from oodshape.engines.ray import GuardScorer, Pool, fit_guard, score  # noqa: E402
from oodshape.engines.work import Listed  # noqa: E402
from oodshape.images.listing import Listing  # noqa: E402

MODEL = "zoo:digits-convnet"
ONE = Pool(actors=1)
pytestmark = [
    pytest.mark.timeout(600),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
]


@pytest.fixture(scope="module")
def cluster() -> Iterator[str]:
    """A small Ray on this machine."""
    found = ray.init(
        num_cpus=2, object_store_memory=100_000_000, include_dashboard=False, log_to_driver=False, logging_level="error"
    )
    yield found.address_info["gcs_address"]
    ray.shutdown()


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_digits(tmp_path_factory.mktemp("digits"), train=200, val=80, test=90, ood=10)
    Guard.fit(
        MODEL, images=root / "train", calibrate=root / "val", method="energy", progress=False, batch_size=16
    ).save(root / "guard.safetensors")
    return root


def around(images: Any, act: Any) -> Any:
    """The images, with something that happens when one of them is read; pickled by value, as its class is local."""

    class Around:
        name, labels, fingerprint, identities = images.name, images.labels, "around", images.identities

        def __len__(self) -> int:
            return len(self.labels)

        def __getitem__(self, index: int) -> Any:
            act(index)
            return images[index]

    return Around()


def test_a_worker_that_is_killed_costs_time_only(cluster: str, tmp_path: Path) -> None:
    train, held = (Subset(digits_sets()[name], range(200)) for name in ("train", "test"))
    killed, driver = tmp_path / "killed", os.getpid()

    def kill(index: int) -> None:
        if index == 120 and os.getpid() != driver and not killed.exists():  # in the third shard: two parts are made
            killed.touch()
            os.kill(os.getpid(), signal.SIGKILL)

    how = {"calibrate": held, "method": "knn", "progress": False, "batch_size": 16}
    guard = fit_guard(MODEL, images=around(train, kill), pool=ONE, shards=4, **how)
    assert killed.exists()
    alone = Guard.fit(MODEL, images=train, **how)
    assert guard.detector.n_train == alone.detector.n_train == 200
    letters = Subset(digits_sets()["letters"], range(40))
    for row, other in zip(*(each.score(letters, MODEL, progress=False) for each in (guard, alone)), strict=True):
        assert row.score == pytest.approx(other.score, rel=1e-5, abs=1e-5)
        assert row.accepted == other.accepted or abs(row.score - alone.detector.threshold) < 1e-5


def test_a_killed_driver_resumes_and_a_vanished_file_is_a_row(cluster: str, digits: Path, tmp_path: Path) -> None:
    out, folder = tmp_path / "scores.csv", tmp_path / "scores.csv.shards"
    words = ["--detector", str(digits / "guard.safetensors"), "--model", MODEL, "--images", str(digits / "test")]
    words += ["--batch-size", "4", "--out", str(out), "--engine", "ray", "--actors", "1", "--quiet"]
    run = subprocess.Popen(
        [sys.executable, "-c", "from oodshape.cli import main; main()", "score", *words],
        env=os.environ | {"RAY_ADDRESS": cluster},
    )
    while run.poll() is None and not list(folder.glob("*.parquet")):
        time.sleep(0.01)
    run.kill()
    run.wait()
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    assert done, "the driver ended before any shard was scored"
    assert not out.exists(), "the driver ended before it was killed"
    listing = Listed.of(Listing.of(str(digits / "test")))
    gone = Path(listing.pairs[-1][0])
    gone.unlink()
    for _ in range(100):  # until the workers of the killed driver are gone, and its last shards are whole or begun
        time.sleep(0.1)
    done = {path: path.stat().st_mtime_ns for path in folder.glob("*.parquet")}
    again = Guard.load(digits / "guard.safetensors")
    tally, took = score(again, listing, MODEL, out, batch_size=4, pool=ONE, progress=False)
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
    driver = os.getpid()

    def full(index: int) -> None:
        if os.getpid() != driver:
            raise MemoryError

    images = around(Subset(digits_sets()["train"], range(64)), full)
    with pytest.raises(InputError, match="^a worker ran out of memory: take fewer actors") as error:
        fit_guard(MODEL, images=images, method="energy", pool=ONE, shards=1, progress=False)
    assert "\n" not in str(error.value)


def test_a_scorer_for_pipelines_of_ones_own(digits: Path) -> None:
    files = sorted((digits / "letters").iterdir())
    batch = {"bytes": [file.read_bytes() for file in files] + [b"no image"], "path": [*map(str, files), "x"]}
    made = GuardScorer(str(digits / "guard.safetensors"), MODEL)(batch)
    guard = Guard.load(digits / "guard.safetensors")
    rows = list(guard.score([*files], MODEL, progress=False))
    assert made["score"][:-1] == [row.score for row in rows]
    assert made["path"] == batch["path"]
    assert (made["score"][-1], made["accepted"][-1]) == (None, None)
    assert "Pillow" in made["error"][-1]
