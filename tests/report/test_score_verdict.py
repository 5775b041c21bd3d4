"""What the page of scored images says of their number: the luck of the calibration counts."""

from __future__ import annotations

import numpy as np
import pytest

from oodshape import METHODS, Features
from oodshape.report.pages.scored_page import _verdict
from oodshape.report.pages.scored_set import ScoredSet, ShownImage

RNG = np.random.default_rng(0)
HEAD = (np.eye(3, 4), np.zeros(3))


@pytest.mark.parametrize(
    ("calibration", "rejected", "said"),
    [
        (70, 0.08, "consistent with all"),
        (70, 0.25, "More are"),
        (5000, 0.08, "More are"),
    ],
)
def test_few_calibration_images_explain_more_rejections(calibration: int, rejected: float, said: str) -> None:
    train, held_out = (Features.from_arrays(RNG.random((n, 4)), HEAD) for n in (50, calibration))
    detector = METHODS["msp"].fit(train).calibrate(held_out, 0.05)
    scored_set, images = ScoredSet("inbox", "new", 10, alpha=0.05), 1000
    for number in range(images):
        p_value = 0.01 if number < rejected * images else 0.5
        scored_set.add(ShownImage(p_value, p_value, ("a.png", number), "0", ""))
    counted, explained = _verdict(scored_set, detector)
    assert f"{round(rejected * images)} of 1,000 images rejected" in counted
    assert said in explained
