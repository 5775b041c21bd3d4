"""The numbers and the sample behind the page of scored images, by hand."""

from __future__ import annotations

import numpy as np
import pytest

from oodshape import METHODS, Features
from oodshape.report.pages.scored_page import _verdict
from oodshape.report.pages.scored_set import ScoredSet, ShownImage

MODEL = "zoo:digits-convnet"


def item(p: float, path: str = "a.png", label: str = "cat") -> ShownImage:
    return ShownImage(p, -p, (path, 0), label)


def test_rejected_at_each_tick_by_hand() -> None:
    scored_set = ScoredSet("set", "ood", 10, alpha=0.05)
    for p, softmax in ((0.01, 0.5), (0.05, 0.04), (0.051, 0.9), (1.0, 0.01)):
        scored_set.add(item(p), softmax)
    ticks = np.array([0.001, 0.01, 0.05, 0.051, 0.5])
    assert scored_set.rejected(ticks) == [0, 1, 2, 3, 3]  # a p-value of alpha is rejected, as the threshold does
    assert scored_set.rejected(ticks, softmax=True) == [0, 1, 2, 2, 3]


def test_a_sample_holds_both_ends_and_some_of_all() -> None:
    values = np.random.default_rng(0).permutation(10_000) / 10_000
    scored_set = ScoredSet("set", "new", 30, alpha=0.05)
    for row, p in enumerate(values):
        scored_set.add(item(float(p), f"{row}.png"))
    shown = [each.p_value for each in scored_set.items]
    assert shown == sorted(shown)
    assert len(shown) == 30
    assert shown[:10] == [row / 10_000 for row in range(10)]
    assert shown[-10:] == [row / 10_000 for row in range(9990, 10_000)]
    again = ScoredSet("set", "new", 30, alpha=0.05)
    for row in reversed(range(10_000)):
        again.add(item(float(values[row]), f"{row}.png"))
    assert again.items == scored_set.items  # whatever the order
    few = ScoredSet("set", "new", 30, alpha=0.05)
    for row in range(30):
        few.add(item(0.5, f"{row}.png"))
    assert len(few.items) == 30


def test_classes_are_ranked_by_their_rate() -> None:
    scored_set = ScoredSet("set", "id", 10, alpha=0.05)
    for row in range(400):
        # class 3 rejects half of its images, the others a twentieth
        rejected = row // 4 % (2 if row % 4 == 3 else 20) == 0
        scored_set.add(item(0.01 if rejected else 0.5, f"{row}.png", str(row % 4)))
    assert scored_set.classes[0] == ("3", 100, 50)
    assert [each.images for each in scored_set.classes] == [100] * 4


RNG = np.random.default_rng(0)
HEAD = (np.eye(3, 4), np.zeros(3))


@pytest.mark.parametrize(
    ("calibration", "rejected", "said"),
    [(70, 0.08, "consistent with all"), (70, 0.25, "More are"), (5000, 0.08, "More are")],
)
def test_few_calibration_images_explain_more_rejections(calibration: int, rejected: float, said: str) -> None:
    train, held_out = (Features.from_arrays(RNG.random((n, 4)), HEAD) for n in (50, calibration))
    detector = METHODS["msp"].fit(train).calibrate(held_out, 0.05)
    scored_set, images = ScoredSet("inbox", "new", 10, alpha=0.05), 1000
    for number in range(images):
        p_value = 0.01 if number < rejected * images else 0.5
        scored_set.add(ShownImage(p_value, p_value, ("a.png", number), "0"))
    _, counted, explained = _verdict(scored_set, detector)
    assert f"{round(rejected * images)} of 1,000 images rejected" in counted
    assert said in explained
