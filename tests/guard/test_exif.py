"""Turned images: an exported guard sees them as `score` does, whatever the guard was told to do with EXIF."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest

from folders_of_digits import write_digits
from oodshape import Guard, GuardedFile
from oodshape.images.datasets.digits import digits_sets

for library in ("onnx", "onnxscript"):
    pytest.importorskip(library)

MODEL = "zoo:digits-convnet"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_digits(tmp_path_factory.mktemp("exif"), train=200, val=60, test=1, ood=1)


@pytest.fixture(scope="module")
def turned(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """Digits in gray and in colour, each with another EXIF orientation, or none."""
    folder, files = tmp_path_factory.mktemp("turned"), []
    for i, orientation in enumerate((None, 1, 6, 6, 6, 8, 3, 2, 5, 6, 0)):
        exif = PIL.Image.Exif()
        if orientation is not None:
            exif[0x0112] = orientation
        picture = PIL.Image.fromarray(digits_sets()["test"].images[7 * i])
        (picture if i % 2 else picture.convert("RGB")).save(folder / f"{i}.png", exif=exif)
        files.append(str(folder / f"{i}.png"))
    return files


@pytest.mark.parametrize("upright", [False, True])
def test_the_service_sees_turned_images_as_score_does(
    upright: bool, digits: Path, turned: list[str], tmp_path: Path
) -> None:
    folders = {"images": digits / "train", "calibrate": digits / "val"}
    guard = Guard.fit(MODEL, **folders, method="energy", upright=upright, progress=False)
    guard.export(tmp_path / "guarded.onnx", MODEL, images=digits / "val")
    service = GuardedFile(str(tmp_path / "guarded.onnx"))
    assert service.exif == ("turned upright" if upright else "ignored")
    rows = list(guard.score(turned, model=MODEL))
    answers = service(turned)
    assert [answer.label for answer in answers] == [row.label for row in rows]
    assert [answer.accepted for answer in answers] == [row.accepted for row in rows]
    np.testing.assert_allclose([answer.score for answer in answers], [row.score for row in rows], atol=1e-3)
    pictures = service([PIL.Image.open(path) for path in turned])
    np.testing.assert_allclose([answer.score for answer in pictures], [row.score for row in rows], atol=1e-3)
    other = Guard(guard.detector, replace(guard.about, upright=not upright))
    differ = [a.score != b.score for a, b in zip(rows, other.score(turned, model=MODEL), strict=True)]
    assert sum(differ) > 5  # the two ways are not the same on these images
