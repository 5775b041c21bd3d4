"""oodshape export: the guard's decisions in onnxruntime, from the command line and from Python."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from commands import GUARD, MODEL, call
from folders_of_digits import write_digits
from oodshape import Guard, InputError
from oodshape.guard.export.onnx import made_up
from oodshape.images.decode.preprocessing import CIFAR, IMAGENET

runtime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = write_digits(tmp_path_factory.mktemp("export"))
    words = ("--images", "train", "--calibrate", "val", "--exportable", "--per-class", "--cache", "none")
    assert call("fit", *MODEL, *words, "--out", "guard.safetensors", cwd=root).returncode == 0
    return root


def test_the_file_decides_as_score_does(place: Path) -> None:
    done = call("export", *GUARD, "--images", "test", "--out", "guarded.onnx", cwd=place)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("guarded.onnx: 64 images in onnxruntime and torch")
    assert "0 different decisions" in done.stdout
    assert b".py" not in (place / "guarded.onnx").read_bytes()  # no path of the machine that it was made on
    assert call("score", *GUARD, "--images", "letters", "--out", "scores.csv", cwd=place).returncode == 0
    rows = list(csv.DictReader((place / "scores.csv").read_text().splitlines()))
    session = runtime.InferenceSession(str(place / "guarded.onnx"), providers=["CPUExecutionProvider"])
    preprocessing = Guard.load(place / "guard.safetensors").about.preprocessing
    images = preprocessing.batch(Image.open(place / row["path"]) for row in rows).numpy()
    _, score, accepted = session.run(None, {"images": images})
    wanted = np.array([float(row["score"]) for row in rows])
    np.testing.assert_allclose(score, wanted, atol=1e-4 * np.abs(wanted).max())
    assert [str(bool(value)).lower() for value in accepted] == [row["accepted"] for row in rows]
    assert 0 < accepted.sum() < len(rows)


def test_bad_input_leaves_no_file(place: Path) -> None:
    done = call("export", *GUARD, "--out", "b.onnx", cwd=place)
    assert done.returncode == 2
    assert "leaves images in their own size; give --images" in done.stderr
    other = ("--guard", "guard.safetensors", "--model", "zoo:digits-vit")
    done = call("export", *other, "--images", "val", "--out", "b.onnx", cwd=place)
    assert done.returncode == 2
    assert "fitted for the network zoo:digits-convnet" in done.stderr
    done = call("export", *GUARD, "--images", "nothing-here", "--out", "b.onnx", cwd=place)
    assert done.returncode == 2
    assert not (place / "b.onnx").exists()


def test_made_up_images_need_a_size() -> None:
    images = made_up(IMAGENET, 3)
    assert images.shape == (3, 3, 224, 224)
    assert float(images.std()) > 0.5
    assert made_up(replace(CIFAR, resize=(64, 48)), 2).shape == (2, 3, 64, 48)
    for way in (CIFAR, replace(CIFAR, resize=64)):
        with pytest.raises(InputError, match="own size"):
            made_up(way)
