"""A guard on images of one's own: the figures and the page."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from oodshape import METHODS, Guard, InputError
from oodshape.guard.check import exact_share
from oodshape.report.pages.check_page import verdict, write_check

MODEL = "zoo:digits-convnet"


def test_the_check_by_hand(guard: Guard, digits: Path, tmp_path: Path) -> None:
    found = guard.check(digits / "test", {"some letters": digits / "letters"}, model=MODEL, progress=False)
    rows = {(row["detector"], row["set"]): row for row in found.rows()}
    assert set(rows) == {(d, s) for d in ("guard", "softmax") for s in ("test", "some letters")}
    scored = list(guard.score(digits / "letters", model=MODEL))
    mine = rows["guard", "some letters"]
    assert mine["accepted"] == sum(row.accepted for row in scored)
    inside = [row.score for row in guard.score(digits / "test", model=MODEL)]
    wins = np.mean([[i > o.score for o in scored] for i in inside])
    assert mine["auroc"]["value"] == pytest.approx(wins, abs=1e-3)
    softmax = guard.about.baseline
    assert softmax.method == METHODS["msp"]
    assert len(softmax.calibration) == len(guard.detector.calibration)
    low, high = found.guaranteed
    assert low <= found.rejected <= high
    assert "as promised" in verdict(found)
    write_check(found, tmp_path / "check.html")
    page = (tmp_path / "check.html").read_text()
    assert "some letters" in page
    assert '"counts":' in page
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")  # a name, no request
    (tmp_path / "empty.png").touch()
    with pytest.raises(InputError, match="no image of"):
        guard.check(digits / "test", tmp_path / "empty.png", model=MODEL)


def test_exact_shares() -> None:
    from scipy.stats import binom

    for count, of in ((0, 10), (3, 10), (10, 10), (250, 300)):
        share = exact_share(count, of)
        assert share.low <= share.value <= share.high
        if count:
            assert binom(of, share.low).sf(count - 1) == pytest.approx(0.025, rel=1e-6)
        if count < of:
            assert binom(of, share.high).cdf(count) == pytest.approx(0.025, rel=1e-6)
