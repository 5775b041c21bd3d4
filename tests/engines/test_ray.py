"""Ray does what one process does: on the command line, in Python, and in a pipeline of one's own."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import call
from oodshape import Guard
from oodshape.guard.fit.parts import Collected, decided

pytest.importorskip("ray", reason="need Ray (make test-ray)")
pytest.importorskip("pyarrow", reason="shards of scores are Parquet")
from oodshape.engines.ray import GuardScorer

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
    assert "images per second, 0 failed; workers spent read" in runs[0].stdout.splitlines()[0]
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


def test_a_collect_on_the_command_line_gives_the_part_of_one_process(
    cluster: str, digits: Path, tmp_path: Path
) -> None:
    words = ["collect", "--model", MODEL, "--images", str(digits / "train"), "--method", "vim", "--batch-size", "16"]
    ray = call(*words, "--out", "ray.safetensors", *RAY, cwd=tmp_path)
    here = call(*words, "--out", "local.safetensors", cwd=tmp_path)
    assert (ray.returncode, here.returncode) == (0, 0), ray.stderr + here.stderr
    assert "images per second, 0 failed" in ray.stdout
    mine, theirs = (Collected.load(tmp_path / f"{name}.safetensors") for name in ("ray", "local"))
    assert not theirs.made.difference(mine.made)
    assert (mine.made.shard, mine.made.shards) == (1, 1)
    assert mine.rows is not None
    assert theirs.rows is not None
    np.testing.assert_array_equal(mine.rows.identities, theirs.rows.identities)
    np.testing.assert_array_equal(mine.rows.labels, theirs.rows.labels)
    sums = [decided(part.rows, part.made)[0] for part in (mine, theirs) if part.rows is not None]
    for one, other in itertools.pairwise([each.every for each in sums if each is not None]):
        assert one.stats.n == other.stats.n == 200
        for name in ("scatter", "class_sums"):
            if name in other.held.parts:
                np.testing.assert_allclose(one.held.parts[name], other.held.parts[name], rtol=1e-4, atol=1e-3)


def test_a_scorer_in_map_batches_of_ones_own(cluster: str, digits: Path, tmp_path: Path) -> None:
    import ray

    for file in (digits / "letters").iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "broken.png").write_bytes(b"no image")
    data = ray.data.read_binary_files(str(tmp_path), include_paths=True, override_num_blocks=2)
    scored = data.map_batches(
        GuardScorer,
        fn_constructor_kwargs={"guard": str(digits / "guard.safetensors"), "model": MODEL},
        batch_size=4,
        compute=ray.data.ActorPoolStrategy(size=1),
    )
    found = {Path(row["path"]).name: row for row in scored.take_all()}
    assert len(found) == 11
    assert set(found["broken.png"]) == {"path", "label", "score", "p_value", "accepted", "error"}
    broken = found.pop("broken.png")
    assert (broken["score"], broken["accepted"]) == (None, None)
    assert "is not a readable image" in broken["error"]
    guard = Guard.load(digits / "guard.safetensors")
    for row in guard.score(digits / "letters", MODEL, progress=False):
        mine = found.pop(Path(row.path).name)
        assert mine["score"] == pytest.approx(row.score, rel=1e-5, abs=1e-5)
        assert mine["p_value"] == pytest.approx(row.p_value, abs=0.02)
        assert (mine["label"], mine["error"]) == (row.label, "")
    assert not found
