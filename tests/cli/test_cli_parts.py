"""One fit and one scoring by many processes, as a scheduler would call them."""

from __future__ import annotations

from pathlib import Path

import pytest

from commands import MODEL, call
from folders_of_digits import write_digits

pytest.importorskip("pyarrow", reason="the scores of a shard are Parquet")
BATCH = ("--batch-size", "16")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Images, the parts of the training images, and a guard of the parts."""
    root = write_digits(tmp_path_factory.mktemp("parts"), train=120, val=60, test=50, ood=20)
    (root / "test" / "broken.png").write_text("no image")
    for number in (2, 1):
        words = ("collect", *MODEL, "--images", "train", "--method", "energy", *BATCH)
        run = call(*words, "--shard", f"{number}/2", "--out", f"part-{number}.safetensors", cwd=root)
        assert (run.returncode, run.stderr) == (0, "")
        assert run.stdout.startswith(f"shard {number}/2: 64 of 120" if number == 1 else "shard 2/2: 56 of 120")
    words = ("fit", "--parts", "part-*.safetensors", "--calibrate", "val", "--method", "energy", "--cache", "none")
    run = call(*words, *MODEL, "--out", "guard.safetensors", cwd=root)
    assert (run.returncode, run.stderr) == (0, "")
    assert "guarantee: expected false rejection rate <= 5 % (split conformal; 99 % range for n = 60 " in run.stdout
    return root


def score(place: Path, out: str, *words: str, images: str = "test", batch: tuple[str, str] = BATCH) -> int:
    guard = ("--guard", "guard.safetensors", *MODEL, "--images", images, *batch)
    return call("score", *guard, "--out", out, *words, cwd=place).returncode


def test_shards_merge_into_what_one_process_writes(place: Path) -> None:
    for number in (1, 2, 3):
        assert score(place, f"scores-{number}.parquet", "--shard", f"{number}/3") in (0, 3)
    for ending in ("csv", "jsonl", "parquet"):
        assert score(place, f"whole.{ending}") == 3  # one image is broken
        given = [f"scores-{number}.parquet" for number in (3, 1, 2)]
        run = call("merge", *given, "--out", f"all.{ending}", cwd=place)
        assert run.stdout.startswith("51 images: ")
        assert "1 could not be read; test/broken.png: is not a readable image" in run.stdout
        assert (place / f"all.{ending}").read_bytes() == (place / f"whole.{ending}").read_bytes()


def test_shards_that_do_not_belong_together_are_named(place: Path) -> None:
    score(place, "a-1.parquet", "--shard", "1/2")
    score(place, "a-2.parquet", "--shard", "2/2")
    score(place, "b-2.parquet", "--shard", "2/2", images="letters")
    score(place, "c-2.parquet", "--shard", "2/2", batch=("--batch-size", "8"))
    score(place, "d-2.parquet", "--shard", "2/3")
    score(place, "plain.parquet")
    damaged = bytearray((place / "a-2.parquet").read_bytes())
    damaged[60] ^= 1
    (place / "e-2.parquet").write_bytes(damaged)
    for files, said in (
        (["a-1.parquet"], "shard 2 of 2 is missing next to a-1.parquet: score it too"),
        (["a-1.parquet", "b-2.parquet"], "b-2.parquet does not belong to a-1.parquet: it was scored with other images"),
        (["a-1.parquet", "c-2.parquet"], "it was scored with another guard or batch size"),
        (["a-1.parquet", "d-2.parquet"], "d-2.parquet is one of 3 shards, a-1.parquet one of 2: they overlap"),
        (["a-1.parquet", "plain.parquet"], "plain.parquet is no shard"),
        (["a-1.parquet", "e-2.parquet"], "e-2.parquet"),
        (["a-1.parquet", "none.parquet"], "there is no file none.parquet"),
    ):
        run = call("merge", *files, "--out", "nothing.csv", cwd=place)
        assert run.returncode == 2, files
        assert said in run.stderr
        assert run.stderr.count("\n") == 1
        assert not list(place.glob("*nothing*"))  # nothing half-written is left


def test_wrong_words_are_one_line(place: Path) -> None:
    fit = ("fit", *MODEL, "--out", "g.safetensors", "--cache", "none", "--method", "energy")
    score_ = ("score", "--guard", "guard.safetensors", *MODEL, "--images", "test")
    collect = ("collect", *MODEL, "--images", "train", "--out", "p.safetensors")
    for words, said in (
        (fit, "give images to fit on, or parts that were collected of them"),
        ((*fit, "--parts", "part-1.safetensors", "--calibrate", "val"), "shard 2 of 2 is missing"),
        ((*fit, "--parts", "part-*.safetensors"), "nothing would set the threshold"),
        ((*fit, "--parts", "none-*.safetensors", "--calibrate", "val"), "there is no file none-*.safetensors"),
        ((*fit, "--parts", "guard.safetensors", "--calibrate", "val"), "holds detector, not part"),
        (
            (*fit, "--parts", "part-*.safetensors", "--calibrate", "val", "--preprocessing", "mean=0.5"),
            "was collected with the",
        ),
        ((*score_[:-1], "-", "--shard", "1/2", "--out", "s.parquet"), "standard input cannot be read twice"),
        ((*collect, "--shard", "0/2"), "a shard is I/N with I from 1 to N, such as 3/16, got '0/2'"),
        ((*collect, "--shard", "three"), "got 'three'"),
    ):
        run = call(*words, cwd=place)
        assert run.returncode == 2, words
        assert said in run.stderr, words
        assert run.stderr.count("\n") == 1
