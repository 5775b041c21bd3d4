"""A new threshold without a new fit: from new images, for another alpha, or both."""

from __future__ import annotations

import warnings
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from oodshape import Classifier, Features, Guard, InputError
from oodshape.guard.describe import NO_GUARANTEE
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.listing import image_set
from oodshape.networks.zoo import build

MODEL = "zoo:digits-convnet"


@pytest.fixture(scope="module")
def fresh(digits: Path) -> Features:
    """The features of images that the guard has never seen."""
    return Features.extract(Classifier(build("digits-convnet")), image_set(digits / "test"), DIGITS)


@pytest.mark.parametrize("per_class", [False, True])
def test_new_images_give_their_own_threshold_and_nothing_else_changes(
    per_class: bool, guard: Guard, digits: Path, fresh: Features, tmp_path: Path
) -> None:
    after = guard.calibrate(digits / "test", alpha=0.1, per_class=per_class, progress=False)
    assert after.detector == guard.detector.calibrate(fresh, 0.1, per_class=per_class)
    assert after.about.baseline == guard.about.baseline.calibrate(fresh, 0.1)
    assert replace(after.about, baseline=None) == replace(guard.about, baseline=None)
    assert after.guarantee.startswith("expected false rejection rate <= 10 %")
    assert ("within each class" in after.guarantee) == per_class
    after.save(tmp_path / "after.safetensors")
    assert Guard.load(tmp_path / "after.safetensors") == after


def test_what_is_not_given_stays(guard: Guard, digits: Path) -> None:
    grouped = guard.calibrate(digits / "val", MODEL, alpha=0.1, per_class=True, progress=False)
    again = grouped.calibrate(digits / "test", MODEL, progress=False)
    assert again.detector.alpha == 0.1
    assert again.detector.groups is not None
    assert again.calibrate(digits / "test", MODEL, per_class=False, progress=False).detector.groups is None


def test_another_alpha_needs_no_network(guard: Guard) -> None:
    strict = guard.calibrate(alpha=0.02)
    kept = guard.detector.calibration
    assert strict.detector.threshold == kept[int(0.02 * (len(kept) + 1)) - 1] < guard.detector.threshold
    assert strict.about.baseline.alpha == 0.02
    assert "rate <= 2 %" in strict.guarantee
    assert strict.calibrate(alpha=0.05) == guard


def test_a_loose_guard_becomes_a_promise_with_images_only(digits: Path) -> None:
    loose = Guard.fit(MODEL, images=digits / "train", method="energy", progress=False)
    assert loose.calibrate(alpha=0.1).guarantee == NO_GUARANTEE
    held = loose.calibrate(digits / "val", progress=False)
    assert held.guarantee.startswith("expected false rejection rate <= 5 % (split conformal, n = 150;")
    assert held.detector.n_train == loose.detector.n_train


def test_images_that_cannot_be_read_are_left_out(guard: Guard, digits: Path, tmp_path: Path) -> None:
    (tmp_path / "broken.png").write_bytes(b"no image")
    files = [*image_set(digits / "test").files, str(tmp_path / "broken.png")]
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        after = guard.calibrate(files, progress=False)
    assert len(after.detector.calibration) == 100
    assert "1 of 101 images" in str(caught[0].message)


def test_the_promise_is_kept_on_other_images(guard: Guard, digits: Path) -> None:
    """Calibrated on one half of new images, the other half is rejected at the rate that the law allows."""
    files = image_set(digits / "test").files
    after = guard.calibrate(files[0::2], alpha=0.1, progress=False)
    assert (
        sum(row.rejected for row in after.score(files[1::2], model=MODEL)) <= 16
    )  # betabinom(50, 5, 46): more once in 770


def test_mistakes_are_one_clear_error(guard: Guard, digits: Path) -> None:
    other = Guard(guard.detector, replace(guard.about, model="mynet:network"))
    for make, message in (
        (lambda: guard.calibrate(), "nothing would change"),
        (lambda: guard.calibrate(alpha=0.001), "alpha = 0.001 needs at least 999 held-out images, got 150"),
        (lambda: guard.calibrate(alpha=2.0), "alpha must lie in"),
        (lambda: guard.calibrate(digits / "test", alpha=0.005), "needs at least 199 held-out images, got 100"),
        (lambda: guard.calibrate(alpha=0.1, per_class=True), "thresholds per class need images"),
        (lambda: guard.calibrate(model=MODEL, alpha=0.1), "need images"),
        (lambda: guard.calibrate(digits / "test", "zoo:digits-vit"), "fitted for the network zoo:digits-convnet"),
        (lambda: other.calibrate(digits / "test"), r"fitted for \(mynet:network\).*may not say what is imported"),
    ):
        with pytest.raises(InputError, match=message):
            make()


def test_the_graph_takes_the_new_threshold(guard: Guard) -> None:
    net = build("digits-convnet")
    wrapped = guard.calibrate(alpha=0.02).detector.wrap(net)
    assert torch.equal(wrapped.threshold, torch.tensor([guard.calibrate(alpha=0.02).detector.threshold]))
