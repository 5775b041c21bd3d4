"""What workers do, whoever calls them: parts and shards as one process makes them. Needs no Ray."""

from __future__ import annotations

import pickle
import sys
import tracemalloc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from commands import call
from oodshape import Guard, InputError
from oodshape.core.options import RunOptions
from oodshape.engines.ray import fit_guard
from oodshape.engines.workers import Collector, Job, ShardScorer, merge_packed_parts, unpack_part
from oodshape.features.features import Features
from oodshape.guard.fit.collect import collect_shard
from oodshape.guard.fit.parts import Collected
from oodshape.images.sources.image_set import Subset
from oodshape.images.sources.open_images import open_images
from oodshape.methods.registry import find_method
from oodshape.networks.loading import open_model, override

MODEL = "zoo:digits-convnet"


@pytest.mark.parametrize("shards", [1, 3, 16])  # of 13 batches: three of 16 are empty
def test_parts_of_workers_add_up_to_that_of_one_process(
    digits: Path, tmp_path: Path, shards: int, one_thread: None
) -> None:
    source, images = open_model(MODEL), open_images(digits / "train")
    run = RunOptions(batch_size=16, progress=False)
    collect_shard(source, digits / "train", tmp_path / "whole", method="vim", run=run)
    whole = Collected.load(tmp_path / "whole")
    job = Job.of(source, shards, run)
    worker = Collector(job, images, find_method("vim"), override(source.native), upright=False, hold_out=False)
    numbers = [*range(2, shards + 1, 2), *range(1, shards + 1, 2)][::-1]
    rows = [worker(number) for number in numbers]
    assert not any(row["lost"] for row in rows)
    parts = [row["part"] for row in rows]
    first = merge_packed_parts(*parts[:-1]) if shards > 1 else None
    found = unpack_part(merge_packed_parts(*([] if first is None else [first]), parts[-1]))
    assert not whole.made.difference(found.made)
    assert whole.rows is not None
    assert found.rows is not None
    for mine, theirs in zip(_columns(found.rows), _columns(whole.rows), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def _columns(rows: Features) -> Iterator[Any]:
    """Identities, labels and values, by identity: workers end in any order."""
    order = np.argsort(rows.identities)
    assert rows.labels is not None
    yield rows.identities[order]
    yield rows.labels.numpy()[order]
    yield np.concatenate([values.numpy() for _, values in rows.chunks()])[order]


def test_a_listed_image_takes_50_bytes(tmp_path: Path) -> None:
    """On the driver, and in the one copy that goes to the workers: 50 MB for a million."""
    (tmp_path / "all.txt").write_text("".join(f"n{row % 1000:08}/{row:08}.JPEG\n" for row in range(50_000)))
    tracemalloc.start()
    listed = open_images(tmp_path / "all.txt")
    kept, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(listed), listed.names[-1]) == (50_000, "n00000999/00049999.JPEG")
    assert max(kept, len(pickle.dumps(listed))) < 50 * 50_000
    assert most < 150 * 50_000


def scorer(digits: Path, folder: Path) -> ShardScorer:
    guard = Guard.load(digits / "guard.safetensors")
    return ShardScorer(
        Job.of(open_model(MODEL), 2, RunOptions(batch_size=8)), guard, open_images(digits / "letters"), folder
    )


def test_a_shard_that_is_there_is_not_scored_again(digits: Path, tmp_path: Path) -> None:
    worker = scorer(digits, tmp_path)
    assert [worker(1)["tally"].images for _ in range(2)] == [8, 0]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("fit", "--parts", "p.safetensors"), "the engine ray takes --images, not --parts"),
        (("score", "--images", ".", "--guard", "guard.safetensors", "--shard", "1/2"), "makes its own shards"),
    ],
)
def test_what_the_engine_does_not_do_is_said_in_one_line(words: tuple[str, ...], says: str, digits: Path) -> None:
    out = "x.parquet" if words[0] == "score" else "x.safetensors"
    run = call(*words, "--model", MODEL, "--out", out, "--engine", "ray", cwd=digits)
    assert run.returncode == 2
    assert says in " ".join(run.stderr.split())


def test_without_ray_one_line_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch, digits: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(InputError, match=r"^the engine ray needs ray: pip install 'oodshape\[ray\]'$"):
        fit_guard(open_model(MODEL), digits / "train", method="energy")


def test_too_few_images_are_refused_before_any_is_read(monkeypatch: pytest.MonkeyPatch, digits: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    few = Subset(open_images(digits / "train"), range(40))
    with pytest.raises(InputError, match="alpha = 0.05 needs 19 there, so 95 in all, got 40"):
        fit_guard(open_model(MODEL), few, method="energy")
