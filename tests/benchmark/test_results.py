"""Results round-trip, their averages equal a loop, and the images that a method gets most wrong."""

from __future__ import annotations

import csv
import io
import json
import math
from base64 import b64decode
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import numpy as np
import pandas as pd
import PIL.Image
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import auc

from oodshape import Features
from oodshape.benchmark.curves import ScoreCurve, ThetaCurve
from oodshape.benchmark.hardest_images import HardestImageFinder
from oodshape.benchmark.plan import BenchOptions
from oodshape.benchmark.results import Row, RunResults
from oodshape.benchmark.run import _merge_seeds, run_benchmark
from oodshape.benchmark.spec import Benchmark
from oodshape.core.errors import InputError
from oodshape.images.decode.thumbnail import SIDE, make_thumbnail
from oodshape.images.sources.image_set import ArraySet
from oodshape.methods.base import Identity
from oodshape.methods.shapes.ash import AshB, AshP, AshRand, AshS
from oodshape.methods.shapes.clipping import Band, Clip
from oodshape.metrics.detection import auroc
from oodshape.metrics.registry import METRICS
from synthetic import results, row

scores = st.lists(st.floats(-50, 50, width=32), min_size=1, max_size=200)


def test_saved_results_load_equal(tmp_path: Path) -> None:
    original = results(["a", "ünïcode <b>"], limit=200)
    original.save(tmp_path / "new" / "folder")
    assert RunResults.load(tmp_path / "new" / "folder") == original
    assert RunResults.load(tmp_path / "new" / "folder" / "results.json") == original
    text = (tmp_path / "new" / "folder" / "results.json").read_text(encoding="utf-8")
    json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    (tmp_path / "results.json").write_text('{"kind": "results", "format": 99}')
    with pytest.raises(InputError, match="format 99"):
        RunResults.load(tmp_path)


def test_the_csv_holds_every_row_as_fractions(tmp_path: Path) -> None:
    original = results()
    original.save(tmp_path)
    back = pd.read_csv(tmp_path / "results.csv")
    pd.testing.assert_frame_equal(back, original.frame, check_dtype=False)
    with (tmp_path / "results.csv").open(encoding="utf-8") as file:
        head = next(csv.reader(file))
    assert head[:9] == ["benchmark", "model", "family", "method", "ood", "group", "auroc", "auroc_low", "auroc_high"]
    assert back[[name for name, metric in METRICS.items() if metric.unit == "%"]].max().max() <= 1


def test_averages_equal_a_loop() -> None:
    made = replace(results(), rows=results().rows[1:])  # one set of one method is missing
    for by in ("model", "ood"):
        frame = made.averages(by).set_index(["method", by])
        keys = {(r.method, getattr(r, by)) for r in made.rows}
        assert set(frame.index) == keys
        for key in keys:
            mine = [r for r in made.rows if (r.method, getattr(r, by)) == key]
            assert frame.loc[key, "over"] == len(mine)
            for metric in METRICS:
                assert math.isclose(frame.loc[key, metric], fmean(r.value(metric) for r in mine))
    with pytest.raises(InputError, match="'model' or 'ood', got 'family'"):
        made.averages("family")  # type: ignore[arg-type]


def test_both_directions_of_fpr95_are_means_over_seeds() -> None:
    first, second = (row("net", "msp", "letters", fpr95=a, fpr95_ood=b) for a, b in ((0.2, 0.4), (0.4, 0.8)))
    (both,) = _merge_seeds([first], [[second]])
    assert (both.value("fpr95"), both.value("fpr95_ood")) == (pytest.approx(0.3), pytest.approx(0.6))
    assert both.spreads["fpr95"] == pytest.approx(0.02**0.5)
    assert Row.of_flat(both.flat()) == both


def test_impossible_rows_are_refused() -> None:
    with pytest.raises(InputError, match=r"auroc must lie in \[0, 1\], got 97.5; did you mean 0.975?"):
        row(auroc=97.5)
    with pytest.raises(InputError, match="fpr95"):
        row(fpr95=math.nan)
    with pytest.raises(InputError, match="two rows for model 'convnet', method 'msp', OOD set 'letters'"):
        RunResults((row(), row()), {})
    with pytest.raises(InputError, match="provenance must be JSON"):
        RunResults((), {"path": Path()})
    assert row(id_accuracy=None).id_accuracy is None


# Curves


@given(scores, scores)
def test_a_curve_keeps_every_score_and_thins_the_roc(inside: list[float], outside: list[float]) -> None:
    curve = ScoreCurve.of("net", "msp", "noise", inside, outside)
    assert (sum(curve.id_counts), sum(curve.ood_counts)) == (len(inside), len(outside))
    assert len(curve.id_counts) == len(curve.ood_counts) == 40
    assert curve.low < curve.high
    assert 2 <= len(curve.fpr) == len(curve.tpr) <= 60
    assert (curve.fpr[0], curve.tpr[0], curve.fpr[-1], curve.tpr[-1]) == (0, 0, 1, 1)
    assert list(curve.fpr) == sorted(curve.fpr)
    assert list(curve.tpr) == sorted(curve.tpr)
    assert auc(curve.fpr, curve.tpr) == pytest.approx(auroc(inside, outside), abs=0.02)


def test_a_curve_has_a_place_for_infinite_and_equal_scores() -> None:
    curve = ScoreCurve.of("net", "msp", "noise", [math.inf, 1.0], [-math.inf])
    assert (sum(curve.id_counts), sum(curve.ood_counts)) == (2, 1)
    assert math.isfinite(curve.high - curve.low)
    assert ScoreCurve.of("net", "msp", "noise", [math.inf], [-math.inf]).id_counts[-1] == 1


def test_theta_is_f_over_z_and_only_for_shapes_of_single_values() -> None:
    band = ThetaCurve.of("net", "vra-p", Band(low=0.5, high=1.0), -1.0, 3.0, points=9)
    assert band is not None
    assert 0.0 not in band.z
    assert band.theta == tuple(pytest.approx(0 if z < 0.5 else min(z, 1) / z, rel=1e-5) for z in band.z)
    identity = ThetaCurve.of("net", "msp", Identity(), 0.0, 3.0)
    assert identity is not None
    assert identity.is_identity
    assert not ThetaCurve.of("net", "react", Clip(t=1.0), 0.0, 3.0).is_identity  # type: ignore[union-attr]
    for shape in (AshP(), AshB(), AshS(), AshRand()):
        assert ThetaCurve.of("net", "ash", shape, 0.0, 3.0) is None


def opened(uri: str) -> PIL.Image.Image:
    return PIL.Image.open(io.BytesIO(b64decode(uri.partition(",")[2])))


def features(n: int, labels: list[int] | None = None) -> Features:
    """n images of which number i is predicted as class i % 2."""
    rows = np.array([[1.0, 0.0] if i % 2 == 0 else [0.0, 1.0] for i in range(n)], np.float32)
    return Features.from_arrays(rows, head=(np.eye(2, dtype=np.float32), np.zeros(2, np.float32)), labels=labels)


@pytest.fixture
def gallery() -> HardestImageFinder:
    images = np.arange(4, dtype=np.uint8)[:, None, None] * np.full((1, 8, 8), 60, np.uint8)
    sets = {"test": ArraySet("test", images), "letters": ArraySet("letters", 255 - images[:3])}
    data = {"test": features(4, [0, 1, 1, 0]), "letters": features(3)}
    made = HardestImageFinder(sets, 2)
    inside = np.array([5.0, 2.0, 6.0, 3.0])
    outside = {"optfs-e": [4.0, 1.0, 5.5], "knn": [0.0, 1.0, 3.5], "msp": [9.0, 9.0, 9.0]}
    made.add("net", {name: (inside, {"letters": np.array(ood)}) for name, ood in outside.items()}, "knn", data)
    return made


def test_the_worst_images_by_hand(gallery: HardestImageFinder) -> None:
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


def test_ties_do_not_count_as_wrong(gallery: HardestImageFinder) -> None:
    tied = {"tied": (np.ones(4), {"letters": np.ones(3)})}
    gallery.add("net", tied, "tied", {"test": features(4), "letters": features(3)})
    picks = gallery.samples().picks
    assert {pick.shares for pick in picks if pick.method == "tied"} == {(0.0, 0.0)}


@pytest.mark.parametrize(("mode", "kind"), [("L", "PNG"), ("RGB", "WEBP"), ("P", "WEBP"), ("1", "PNG")])
def test_thumbnails_are_small_pictures(mode: str, kind: str) -> None:
    picture = PIL.Image.new("RGB", (300, 200), (200, 40, 90)).convert(mode)
    before = picture.tobytes()
    shown = opened(make_thumbnail(picture))
    assert (shown.format, max(shown.size)) == (kind, SIDE)
    assert picture.tobytes() == before
    assert opened(make_thumbnail(np.zeros((16, 16), np.uint8))).size == (16, 16)


def test_a_run_keeps_samples_and_they_are_saved(tmp_path: Path) -> None:
    options = BenchOptions(
        models=("ViT",), methods=("energy", "knn", "optfs-e"), limit=40, resamples=5, samples=3, progress=False
    )
    results = run_benchmark(Benchmark.load("digits"), options)
    means = {name: np.mean([r.value("auroc") for r in results.rows if r.method == name]) for name in options.methods}
    assert {pick.method for pick in results.samples.picks} == {max(means, key=means.__getitem__), "optfs-e"}
    assert all(len(pick.images) == 3 for pick in results.samples.picks)
    assert {pick.ood for pick in results.samples.picks} == {"", *results.names("ood")}
    for pick in results.samples.picks:
        assert list(pick.scores) == sorted(pick.scores, reverse=bool(pick.ood))
    results.save(tmp_path)
    assert RunResults.load(tmp_path) == results
    none = run_benchmark(Benchmark.load("digits"), replace(options, samples=0))
    assert none.samples.picks == none.samples.images == ()
