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

from oodshape.benchmark.results import Row, RunResults
from oodshape.benchmark.run import _merge_seeds
from oodshape.core.errors import InputError
from oodshape.images.decode.preprocessing import SIDE, make_thumbnail
from oodshape.metrics.detection import auroc, roc_points
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
def test_a_curve_thins_the_roc(inside: list[float], outside: list[float]) -> None:
    fpr, tpr = roc_points(inside, outside)
    assert 2 <= len(fpr) == len(tpr) <= 60
    for rates in (fpr, tpr):
        assert (rates[0], rates[-1]) == (0, 1)
        assert list(rates) == sorted(rates)
    assert auc(fpr, tpr) == pytest.approx(auroc(inside, outside), abs=0.02)


def opened(uri: str) -> PIL.Image.Image:
    return PIL.Image.open(io.BytesIO(b64decode(uri.partition(",")[2])))


@pytest.mark.parametrize(("mode", "kind"), [("L", "PNG"), ("RGB", "WEBP"), ("P", "WEBP"), ("1", "PNG")])
def test_thumbnails_are_small_pictures(mode: str, kind: str) -> None:
    picture = PIL.Image.new("RGB", (300, 200), (200, 40, 90)).convert(mode)
    before = picture.tobytes()
    shown = opened(make_thumbnail(picture))
    assert (shown.format, max(shown.size)) == (kind, SIDE)
    assert picture.tobytes() == before
    assert opened(make_thumbnail(np.zeros((16, 16), np.uint8))).size == (16, 16)
