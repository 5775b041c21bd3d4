"""From a network and folders of images to decisions, in Python; and a new threshold without a new fit."""

from __future__ import annotations

import os
import shutil
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from oodshape import METHODS, Classifier, Features, Guard, InputError, Preprocessing
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.open_images import open_images
from oodshape.networks.model_names import read_class_names
from oodshape.networks.zoo import build

MODEL = "zoo:digits-convnet"


def test_it_is_what_the_pieces_give(guard: Guard, digits: Path) -> None:
    classifier = Classifier(build("digits-convnet"))
    train, held = (Features.extract(classifier, open_images(digits / part), DIGITS) for part in ("train", "val"))
    detector = METHODS["optfs-e"].fit(train).calibrate(held, 0.05)
    assert guard.detector == detector
    assert guard.about.classes == tuple(f"digit {i}" for i in range(8))
    assert guard.about.preprocessing == DIGITS
    rows = list(guard.score(digits / "test", model=MODEL, batch_size=64))
    test = Features.extract(classifier, open_images(digits / "test"), DIGITS)
    decision = detector.decide(test)
    assert [row.path for row in rows] == open_images(digits / "test").files
    assert [row.label for row in rows] == [f"digit {label}" for label in decision.classes.tolist()]
    np.testing.assert_allclose([row.score for row in rows], decision.scores.numpy(), rtol=1e-5)
    np.testing.assert_allclose([row.p_value for row in rows], decision.p_values.numpy(), atol=0.02)
    assert all(row.accepted == (row.score >= detector.threshold) for row in rows)


def test_too_few_images_say_how_many_are_needed(digits: Path) -> None:
    files = open_images(digits / "val").files
    with pytest.raises(InputError, match="alpha = 0.05 needs at least 19 held-out images, got 18"):
        Guard.fit(MODEL, images=digits / "train", calibrate=files[:18])
    with pytest.raises(InputError, match=r"needs 19 there, so 95 in all, got 50"):
        Guard.fit(MODEL, images=digits / "train", limit=50)
    with pytest.raises(InputError, match="3 of the 40 calibration images are training images too"):
        Guard.fit(MODEL, images=files[:20], calibrate=files[17:57])


def test_images_that_cannot_be_read_are_left_out_of_the_fit(digits: Path, tmp_path: Path) -> None:
    good = open_images(digits / "train").files
    (tmp_path / "broken.png").write_bytes(b"no image")
    held = open_images(digits / "val").files
    lists = {"images": [str(tmp_path / "broken.png"), *good], "calibrate": [*held, str(tmp_path / "missing.png")]}
    for cache in (None, tmp_path / "cache"):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            guard = Guard.fit(MODEL, **lists, method="optfs-e", cache=cache, progress=False)
        texts = [str(each.message) for each in caught]
        texts = [text for text in texts if not text.startswith("the guard accepts")]
        assert len(texts) == 2
        assert f"1 of {len(good) + 1} images" in texts[0]
        assert "broken.png" in texts[0]
        assert "missing.png" in texts[1]
        clean = Guard.fit(MODEL, images=good, calibrate=held, method="optfs-e", progress=False).detector
        assert guard.detector.n_train == len(good)
        # another batch moves a feature across the limit of a piece: OptFS has steps
        np.testing.assert_allclose(guard.detector.calibration, clean.calibration, rtol=5e-3)
    with pytest.raises(InputError, match="none of the 2 images of 2 images can be read"):
        Guard.fit(MODEL, images=good, calibrate=[tmp_path / "broken.png", tmp_path / "gone.png"], alpha=0.4)


def test_another_network_or_preprocessing_is_an_error(guard: Guard, digits: Path) -> None:
    with pytest.raises(InputError, match=r"fitted for the network zoo:digits-convnet .*but got zoo:digits-vit"):
        guard.score(digits / "test", model="zoo:digits-vit")
    changed = build("digits-convnet")
    with torch.no_grad():
        next(changed.parameters()).add_(1e-3)
    with pytest.raises(InputError, match="fingerprint"):
        guard.score(digits / "test", model=changed)
    equal = build("digits-convnet")
    next(equal.children()).register_forward_hook(lambda _, args, output: output * 1.1)
    with pytest.raises(InputError, match="has the weights of the guard's, but gives other logits"):
        guard.score(digits / "test", model=equal)
    source = guard.open_network(MODEL)
    with pytest.raises(InputError, match=r"fitted with the preprocessing Preprocessing\(.*but got .*resize=20"):
        guard.open_network(replace(source, native=replace(DIGITS, resize=20)))
    mine = Guard.fit(MODEL, images=digits / "train", method="msp", preprocessing=replace(DIGITS, mean=(0.3,)))
    assert mine.open_network(MODEL).native == DIGITS  # what was given at the fit stands in for the model's own


def test_names_and_orders_of_classes(digits: Path, tmp_path: Path) -> None:
    for place, folder in enumerate(sorted((digits / "train").iterdir())):
        (tmp_path / f"{'hgfedcba'[place]}").symlink_to(folder)  # the other way round
    with pytest.warns(UserWarning, match="only 0.0 % of the training images the class of their folder"):
        other = Guard.fit(MODEL, images=tmp_path, method="msp", progress=False)
    assert other.about.classes == ()
    assert other.label(3) == 3
    for name, folder in {"a": "h", "b": "g", "c": "f", "d": "e", "e": "d", "f": "c", "g": "a", "h": "b"}.items():
        (tmp_path / "two").mkdir(exist_ok=True)
        (tmp_path / "two" / name).symlink_to(tmp_path / folder)  # the last two are swapped: six in eight are right
    with pytest.warns(UserWarning, match="the network gives most images of g the class of h: was it"):
        assert Guard.fit(MODEL, images=tmp_path / "two", method="msp", progress=False).about.classes == ()
    with pytest.warns(UserWarning, match="most images of g the class of h: .* in another order .than the names given"):
        Guard.fit(MODEL, images=tmp_path / "two", method="msp", classes=list("abcdefgh"), progress=False)
    right = Guard.fit(MODEL, images=tmp_path / "two", method="msp", classes=list("abcdefhg"), progress=False)
    assert right.about.classes == tuple("abcdefhg")
    with pytest.raises(InputError, match="8 classes, but 2 names"):
        Guard.fit(MODEL, images=digits / "train", method="msp", classes=("a", "b"), progress=False)


def test_colour_images_of_any_size(digits: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    net = torch.nn.Sequential(*layers, torch.nn.Linear(8, 4)).eval()
    way = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3)
    free = Guard.fit(net, images=digits / "train", method="msp", preprocessing=way)
    for side in (9, 2, 30, 9):
        Image.new("RGB", (side, 9), "green").save(tmp_path / f"{side}.png")
    any_size = Guard(free.detector, replace(free.about, input_shape=None))  # as if fitted on several
    rows = {Path(row.path).name: row for row in any_size.score(tmp_path, model=net)}
    assert rows["9.png"].score is not None
    assert rows["30.png"].score is not None
    assert "does not take its size" in rows["2.png"].error


def test_a_plain_detector_is_no_guard(guard: Guard, tmp_path: Path) -> None:
    guard.detector.save(tmp_path / "d.safetensors")
    with pytest.raises(InputError, match="oodshape fit, or Guard.fit"):
        Guard.load(tmp_path / "d.safetensors")
    bare = METHODS["msp"].fit(Features.from_arrays([[1.0, 2.0]], ([[1.0, 0.0], [0.0, 1.0]], None)))
    with pytest.raises(InputError, match="no threshold"):
        Guard(bare, guard.about)


class Numbered(torch.utils.data.Dataset[Any]):
    def __len__(self) -> int:
        return 2

    def __getitem__(self, row: int) -> tuple[Tensor, int]:
        return torch.zeros(1, 16, 16), row


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"images": "train"}, "got dict"),
        (None, "give images to fit on, or parts"),
        (3, "got int"),
        ([3, 4], "got list with int at place 0"),
        (["a.png", None], "got list with NoneType at place 1"),
        (["a.png", torch.zeros(1)], r"\[C, H, W\] with 1, 3 or 4 channels, got \[1\]"),
        (torch.zeros(2, 1, 16, 16) - 1, r"lies in 0..1, got -1 to -1; .*prepared=True"),
        (torch.zeros(2, 1, 16, 16, dtype=torch.int64), "uint8, or float in 0..1, got torch.int64"),
        (np.zeros((2, 16, 16), np.uint8), r"got uint8\[2, 16, 16\]; gray images .* images\[..., None\]"),
        (np.zeros((16, 16)), r"got float64\[16, 16\]"),
        (np.zeros((0, 16, 16, 3), np.uint8), r"got uint8\[0, 16, 16, 3\]"),
        (torch.utils.data.DataLoader(Numbered(), batch_size=2), r"got \[2, 1, 16, 16\]; .*prepared=True"),
    ],
)
def test_what_is_no_image_is_refused_before_any_work(given: Any, named: str) -> None:
    with pytest.raises(InputError, match=named) as refused:
        Guard.fit(MODEL, images=given, method="msp")
    assert "\n" not in str(refused.value)


def test_score_refuses_when_it_is_called(guard: Guard, digits: Path) -> None:
    with pytest.raises(InputError, match="got int"):
        guard.score(3, MODEL)  # no row is asked for
    with pytest.raises(InputError, match="got int"):
        guard.check(digits / "test", {"other": 3}, MODEL)
    with pytest.raises(InputError, match="prepared=True takes .* got int"):
        guard.score(3, MODEL, prepared=True)


@pytest.fixture(scope="module")
def fresh(digits: Path) -> Features:
    """The features of images that the guard has never seen."""
    return Features.extract(Classifier(build("digits-convnet")), open_images(digits / "test"), DIGITS)


@pytest.mark.parametrize("per_class", [False, True])
def test_new_images_give_their_own_threshold_and_nothing_else_changes(
    per_class: bool, guard: Guard, digits: Path, fresh: Features, tmp_path: Path
) -> None:
    after = guard.calibrate(digits / "test", alpha=0.1, per_class=per_class, progress=False)
    assert after.detector == guard.detector.calibrate(fresh, 0.1, per_class=per_class)
    assert after.about.baseline == guard.about.baseline.calibrate(fresh, 0.1)
    moved: dict[str, Any] = {"baseline": None, "calibrated_on": None}
    assert replace(after.about, **moved) == replace(guard.about, **moved)
    assert after.guarantee.startswith("expected false rejection rate <= 10 %")
    assert ("within each class" in after.guarantee) == per_class
    after.save(tmp_path / "after.safetensors")
    assert Guard.load(tmp_path / "after.safetensors") == after


def test_copies_of_calibration_files_count_once(guard: Guard, digits: Path, tmp_path: Path) -> None:
    files = sorted(map(str, (digits / "test").iterdir()))
    copies = [shutil.copy(file, tmp_path / f"copy-{Path(file).name}") for file in files]
    with pytest.warns(UserWarning, match="100 of the 200 calibration images are copies of others"):
        after = guard.calibrate([*files, *map(str, copies)], MODEL, progress=False)
    assert len(after.detector.calibration) == 100


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
    assert loose.calibrate(alpha=0.1).guarantee == "no guarantee: calibrated on training images"
    with pytest.raises(InputError, match=r"\d+ of the \d+ calibration images are training images too"):
        loose.calibrate(digits / "train", progress=False)
    held = loose.calibrate(digits / "val", progress=False)
    assert held.guarantee.startswith("expected false rejection rate <= 5 % (split conformal; 99 % range for n = 150 ")
    assert held.detector.n_train == loose.detector.n_train


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


def test_a_network_that_was_never_trained_is_a_warning(digits: Path) -> None:
    torch.manual_seed(0)
    net = build("digits-convnet")
    for layer in net.modules():
        if isinstance(layer, (torch.nn.Conv2d, torch.nn.Linear)):
            layer.reset_parameters()
    folders = {"images": digits / "train", "calibrate": digits / "val"}
    with pytest.warns(UserWarning, match="as chance would .*: was it ever trained, and were its weights loaded"):
        Guard.fit(net, **folders, method="msp", preprocessing=DIGITS, progress=False)


@pytest.mark.parametrize("prepared", [False, True])
def test_images_that_selected_methods_set_no_threshold(digits: Path, prepared: bool) -> None:
    """`auto` selects by half of the calibration images: the same images again would void the guarantee."""
    images = load_digits_sets()
    way: dict[str, Any] = {"prepared": True} if prepared else {}
    train, val, other = (
        torch.from_numpy(each[:, None] / np.float32(16)) if prepared else each[..., None]
        for each in (images["train"].images[:400], images["test"].images[:200], images["train"].images[500:700])
    )
    guard = Guard.fit(MODEL, images=train, calibrate=val, progress=False, **way)
    assert len(guard.detector.calibration) == 100
    with pytest.raises(
        InputError, match="200 of the 200 calibration images are images that fit used, to select methods or to"
    ):
        guard.calibrate(val, MODEL, progress=False, **way)
    guard.save(digits / "selected.safetensors")
    again = Guard.load(digits / "selected.safetensors")
    assert len(again.calibrate(other, MODEL, progress=False, **way).detector.calibration) == 200
    single = Guard.fit(MODEL, images=train, calibrate=val, method="msp", progress=False, **way)
    assert len(single.calibrate(val, MODEL, progress=False, **way).detector.calibration) == 200


@pytest.mark.skipif(sys.platform == "win32", reason="has no named pipes in folders")
@pytest.mark.timeout(20)
def test_class_names_are_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "names.txt")
    for path in (tmp_path / "names.txt", Path("/dev/zero")):
        with pytest.raises(InputError, match="cannot read the class names"):
            read_class_names(path)
