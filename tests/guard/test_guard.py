"""From a network and folders of images to decisions, in Python."""

from __future__ import annotations

import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from folders_of_digits import write_odd_files
from oodshape import METHODS, Classifier, Detector, Features, Guard, InputError, Preprocessing
from oodshape.guard.describe import chosen_lines, facts
from oodshape.guard.fitted import NO_GUARANTEE
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.listing import image_set
from oodshape.networks.zoo import build

MODEL = "zoo:digits-convnet"


def test_it_is_what_the_pieces_give(guard: Guard, digits: Path) -> None:
    classifier = Classifier(build("digits-convnet"))
    train, held = (Features.extract(classifier, image_set(digits / part), DIGITS) for part in ("train", "val"))
    detector = METHODS["optfs-e"].fit(train).calibrate(held, 0.05)
    assert guard.detector == detector
    assert guard.about.classes == tuple(f"digit {i}" for i in range(8))
    assert guard.about.preprocessing == DIGITS
    rows = list(guard.score(digits / "test", model=MODEL, batch_size=64))
    test = Features.extract(classifier, image_set(digits / "test"), DIGITS)
    decision = detector.decide(test)
    assert [row.path for row in rows] == image_set(digits / "test").files
    assert [row.label for row in rows] == [f"digit {label}" for label in decision.classes.tolist()]
    np.testing.assert_allclose([row.score for row in rows], decision.scores.numpy(), rtol=1e-5)
    np.testing.assert_allclose([row.p_value for row in rows], decision.p_values.numpy(), atol=0.02)
    assert all(row.accepted == (row.score >= detector.threshold) for row in rows)


def test_auto_chooses_says_why_and_survives_a_file(digits: Path, tmp_path: Path) -> None:
    guard = Guard.fit(MODEL, images=digits / "train", calibrate=digits / "val", progress=False)
    lines = chosen_lines(guard)
    assert len(lines) >= 2
    assert lines[0].startswith("auto selected ")
    assert "scrambled" in lines[1]
    path = tmp_path / "guard.safetensors"
    guard.save(path)
    assert Guard.load(path) == guard
    assert Detector.load(path) == guard.detector
    # in a process that has imported nothing yet
    code = f"from oodshape import Guard; print(Guard.load({str(path)!r}).about.method)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "auto\n"
    assert json.loads(json.dumps(facts(guard)))["components"] == facts(guard)["components"]


def test_without_calibration_images_nothing_is_promised(digits: Path) -> None:
    guard = Guard.fit(MODEL, images=digits / "train", method="energy", progress=False)
    assert guard.guarantee == NO_GUARANTEE == "no guarantee: calibrated on training images"
    n = len(image_set(digits / "train"))
    assert guard.detector.n_train + len(guard.detector.calibration) == n
    assert len(guard.detector.calibration) == pytest.approx(n / 5, rel=0.2)


def test_too_few_images_say_how_many_are_needed(digits: Path) -> None:
    files = image_set(digits / "val").files
    with pytest.raises(InputError, match="alpha = 0.05 needs at least 19 held-out images, got 18"):
        Guard.fit(MODEL, images=digits / "train", calibrate=files[:18])
    with pytest.raises(InputError, match=r"needs 19 there, so 95 in all, got 50"):
        Guard.fit(MODEL, images=digits / "train", limit=50)
    with pytest.raises(InputError, match="3 of the 40 calibration images are training images too"):
        Guard.fit(MODEL, images=files[:20], calibrate=files[17:57])


def test_a_method_that_does_not_suit_the_features_warns(digits: Path) -> None:
    signed = {"images": digits / "train", "calibrate": digits / "val", "progress": False}
    with pytest.warns(UserWarning, match="ash-s is made for features that are never negative"):
        Guard.fit("zoo:digits-vit", method="ash-s", **signed)
    with pytest.warns(UserWarning, match="vra-p is made for"):
        Guard.fit("zoo:digits-vit", method="vra-p", **signed)
    Guard.fit(MODEL, method="ash-s", **signed)  # after a ReLU: no warning
    with pytest.raises(InputError, match="no method is called 'magic'"):
        Guard.fit(MODEL, method="magic", **signed)


def test_images_that_cannot_be_read_are_left_out_of_the_fit(digits: Path, tmp_path: Path) -> None:
    good = image_set(digits / "train").files
    (tmp_path / "broken.png").write_bytes(b"no image")
    held = image_set(digits / "val").files
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
        np.testing.assert_allclose(guard.detector.calibration, clean.calibration, rtol=1e-5)
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
    with pytest.raises(InputError, match="8 classes, but 2 names"):
        Guard.fit(MODEL, images=digits / "train", method="msp", classes=("a", "b"), progress=False)


def test_odd_files_go_through(guard: Guard, tmp_path: Path) -> None:
    expected = write_odd_files(tmp_path)
    any_size = Guard(guard.detector, replace(guard.about, input_shape=None))
    rows = {Path(row.path).name: row for row in any_size.score(tmp_path, model=MODEL)}
    assert list(rows) == sorted(expected)
    for name, error in expected.items():
        assert (error in rows[name].error) if error else not rows[name].error, rows[name]
        assert (rows[name].score is None) == bool(error)
    assert not rows["tiny.png"].accepted


def test_colour_images_of_any_size_and_an_archive(digits: Path, tmp_path: Path) -> None:
    torch.manual_seed(0)
    layers = torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten()
    net = torch.nn.Sequential(*layers, torch.nn.Linear(8, 4)).eval()
    program = torch.export.export(net, (torch.rand(2, 3, 8, 8),), dynamic_shapes=({0: torch.export.Dim("batch")},))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="No complete tensor found")
        torch.export.save(program, tmp_path / "net.pt2")
    way = Preprocessing(mean=(0.5,) * 3, std=(0.5,) * 3, resize=8, crop=8)
    fitted = Guard.fit(
        tmp_path / "net.pt2", images=digits / "train", method="msp", preprocessing=way, limit=100, trust_code=True
    )
    assert len(list(fitted.score(digits / "letters", model=tmp_path / "net.pt2", trust_code=True))) == 60
    free = Guard.fit(net, images=digits / "train", method="msp", preprocessing=replace(way, resize=None, crop=None))
    for side in (9, 2, 30, 9):
        Image.new("RGB", (side, 9), "green").save(tmp_path / f"{side}.png")
    any_size = Guard(free.detector, replace(free.about, input_shape=None))  # as if fitted on several
    rows = {Path(row.path).name: row for row in any_size.score(tmp_path, model=net)}
    assert rows["9.png"].score is not None
    assert rows["30.png"].score is not None
    assert "does not take its size" in rows["2.png"].error


def test_per_class_guards_say_how_many_have_their_own(digits: Path) -> None:
    from oodshape.guard.describe import lines

    guard = Guard.fit(
        MODEL, images=digits / "train", calibrate=digits / "val", method="energy", alpha=0.05, per_class=True
    )
    own = len(guard.detector.class_scores) - 1
    assert 0 < own < 8
    assert f"{own} of 8 classes have a threshold of their own" in str(lines(guard))
    assert "99 %" not in guard.guarantee  # one interval does not hold for every class
    for row in guard.score(digits / "test", model=MODEL):
        label = guard.about.classes.index(row.label)
        assert row.accepted == (np.float32(row.score) >= guard.detector.thresholds[label])


def test_a_plain_detector_is_no_guard(guard: Guard, tmp_path: Path) -> None:
    guard.detector.save(tmp_path / "d.safetensors")
    with pytest.raises(InputError, match="oodshape fit, or Guard.fit"):
        Guard.load(tmp_path / "d.safetensors")
    bare = METHODS["msp"].fit(Features.from_arrays([[1.0, 2.0]], ([[1.0, 0.0], [0.0, 1.0]], None)))
    with pytest.raises(InputError, match="no threshold"):
        Guard(bare, guard.about)
