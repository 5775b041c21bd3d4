"""oodshape calibrate as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from commands import MODEL, call
from folders_of_digits import write_digits
from oodshape import Guard
from oodshape.cli.calibrate import UNKNOWN
from oodshape.guard.describe import Contents


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Folders of digits, and a guard of them."""
    root = write_digits(tmp_path, train=200, val=60)
    guard = Guard.fit(MODEL[1], images=root / "train", calibrate=root / "val", method="msp", progress=False)
    guard.save(root / "guard.safetensors")
    return root


def test_a_new_threshold_takes_the_place_of_the_old_one(place: Path) -> None:
    before = Guard.load(place / "guard.safetensors")
    files = sorted(place.iterdir())
    done = call("calibrate", "guard.safetensors", "--images", "test", "--alpha", "0.02", cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    first, promise, note, last = done.stdout.splitlines()
    after = Guard.load(place / "guard.safetensors")
    assert after.detector.alpha == 0.02
    assert after.detector.scorer == before.detector.scorer
    said = [Contents.of(guard).threshold_text for guard in (after, before)]
    assert first == f"threshold: {said[0]}, before {said[1]}"
    assert "a probability of 0." in first
    assert promise.startswith("guarantee: expected false rejection rate <= 2 % (split conformal, n = 100;")
    assert note == UNKNOWN
    assert last == "guard: guard.safetensors"
    assert sorted(place.iterdir()) == files  # nothing is left beside it


def test_another_file_leaves_the_first_alone(place: Path) -> None:
    bytes_before = (place / "guard.safetensors").read_bytes()
    words = ("--images", "test", *MODEL, "--alpha", "0.1", "--per-class", "--out", "other.safetensors", "--json")
    done = call("calibrate", "guard.safetensors", *words, cwd=place)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert (said["alpha"], said["calibration_images"], said["held_out"]) == (0.1, 100, True)
    assert said["classes_with_own_threshold"] > 0
    assert (place / "guard.safetensors").read_bytes() == bytes_before
    assert call("calibrate", "other.safetensors", "--alpha", "0.2", "--quiet", cwd=place).stdout == ""
    assert Guard.load(place / "other.safetensors").detector.alpha == 0.2
