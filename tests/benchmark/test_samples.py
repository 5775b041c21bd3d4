"""The images that a method gets most wrong: which they are by hand, each kept once, small, and only for a few."""

from __future__ import annotations

import io
from base64 import b64decode
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from oodshape import Features
from oodshape.benchmark.hardest_images import Gallery
from oodshape.benchmark.plan import Options
from oodshape.benchmark.results import Results
from oodshape.benchmark.run import run
from oodshape.benchmark.spec import Benchmark
from oodshape.images.decode.thumbnail import SIDE, thumbnail
from oodshape.images.sources.image_set import ArraySet


def opened(uri: str) -> PIL.Image.Image:
    return PIL.Image.open(io.BytesIO(b64decode(uri.partition(",")[2])))


def features(n: int, labels: list[int] | None = None) -> Features:
    """n images of which number i is predicted as class i % 2."""
    rows = np.array([[1.0, 0.0] if i % 2 == 0 else [0.0, 1.0] for i in range(n)], np.float32)
    return Features.from_arrays(rows, head=(np.eye(2, dtype=np.float32), np.zeros(2, np.float32)), labels=labels)


@pytest.fixture
def gallery() -> Gallery:
    images = np.arange(4, dtype=np.uint8)[:, None, None] * np.full((1, 8, 8), 60, np.uint8)
    sets = {"test": ArraySet("test", images), "letters": ArraySet("letters", 255 - images[:3])}
    data = {"test": features(4, [0, 1, 1, 0]), "letters": features(3)}
    made = Gallery(sets, 2)
    inside = np.array([5.0, 2.0, 6.0, 3.0])
    outside = {"optfs-e": [4.0, 1.0, 5.5], "knn": [0.0, 1.0, 3.5], "msp": [9.0, 9.0, 9.0]}
    made.add("net", {name: (inside, {"letters": np.array(ood)}) for name, ood in outside.items()}, "knn", data)
    return made


def test_the_worst_images_by_hand(gallery: Gallery) -> None:
    samples = gallery.samples()
    picks = {(pick.method, pick.ood): pick for pick in samples.picks}
    assert set(picks) == {("optfs-e", ""), ("optfs-e", "letters"), ("knn", ""), ("knn", "letters")}  # best and ours
    outside, inside = picks["optfs-e", "letters"], picks["optfs-e", ""]
    assert outside.scores == (5.5, 4.0)
    assert outside.shares == (0.75, 0.5)  # of 5, 2, 6, 3 three lie below 5.5, two below 4
    assert outside.predicted == (0, 0)
    assert outside.labels == (-1, -1)
    assert inside.scores == (2.0, 3.0)
    assert inside.shares == (0.6667, 0.6667)  # 4 and 5.5 of the three OOD scores
    assert (inside.predicted, inside.labels) == ((1, 1), (1, 0))
    assert picks["knn", ""].images == inside.images  # the same image is kept once
    assert len(samples.images) == len(set(samples.images)) == 2 + 3
    assert np.asarray(opened(samples.images[outside.images[0]])).tolist() == [[255 - 120] * 8] * 8


def test_ties_do_not_count_as_wrong(gallery: Gallery) -> None:
    tied = {"tied": (np.ones(4), {"letters": np.ones(3)})}
    gallery.add("net", tied, "tied", {"test": features(4), "letters": features(3)})
    picks = gallery.samples().picks
    assert {pick.shares for pick in picks if pick.method == "tied"} == {(0.0, 0.0)}


@pytest.mark.parametrize(("mode", "kind"), [("L", "PNG"), ("RGB", "WEBP"), ("P", "WEBP"), ("1", "PNG")])
def test_thumbnails_are_small_pictures(mode: str, kind: str) -> None:
    picture = PIL.Image.new("RGB", (300, 200), (200, 40, 90)).convert(mode)
    before = picture.tobytes()
    shown = opened(thumbnail(picture))
    assert (shown.format, max(shown.size)) == (kind, SIDE)
    assert picture.tobytes() == before
    assert opened(thumbnail(np.zeros((16, 16), np.uint8))).size == (16, 16)


def test_a_run_keeps_samples_and_they_are_saved(tmp_path: Path) -> None:
    options = Options(
        models=("ViT",), methods=("energy", "knn", "optfs-e"), limit=40, resamples=5, samples=3, progress=False
    )
    results = run(Benchmark.load("digits"), options)
    means = {name: np.mean([r.value("auroc") for r in results.rows if r.method == name]) for name in options.methods}
    assert {pick.method for pick in results.samples.picks} == {max(means, key=means.__getitem__), "optfs-e"}
    assert all(len(pick.images) == 3 for pick in results.samples.picks)
    assert {pick.ood for pick in results.samples.picks} == {"", *results.names("ood")}
    for pick in results.samples.picks:
        assert list(pick.scores) == sorted(pick.scores, reverse=bool(pick.ood))
    results.save(tmp_path)
    assert Results.load(tmp_path) == results
    none = run(Benchmark.load("digits"), replace(options, samples=0))
    assert none.samples.picks == none.samples.images == ()
