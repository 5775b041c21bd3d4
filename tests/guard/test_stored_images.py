"""A guard of images in tars, a Parquet column or behind an address is that of the folder, and scores as it does."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from commands import call
from oodshape import Guard
from oodshape.images.sources.listing import image_set, in_column

MODEL = "zoo:digits-convnet"
pa = pytest.importorskip("pyarrow", reason="Parquet is read by pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="Parquet is read by pyarrow")


@pytest.fixture(scope="module")
def stores(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training and the test images as tar files and as Parquet files."""
    root = tmp_path_factory.mktemp("stores")
    for name in ("train", "test"):
        files = image_set(digits / name).files
        table = {"picture": [Path(file).read_bytes() for file in files], "label": image_set(digits / name).labels}
        pq.write_table(pa.table(table), root / f"{name}.parquet", row_group_size=70)
        for number in range(2):
            with tarfile.open(root / f"{name}-{number}.tar", "w") as tar:
                for place, file in enumerate(files[number * len(files) // 2 : (number + 1) * len(files) // 2]):
                    tar.add(file, f"{place:04}.png")
    return root


def test_a_guard_fits_on_what_a_folder_holds(guard: Guard, digits: Path, stores: Path) -> None:
    for images in (f"{stores}/train-*.tar", in_column(f"{stores}/train.parquet", "picture"), f"file://{digits}/train"):
        made = Guard.fit(MODEL, images=images, calibrate=digits / "val", method="optfs-e", progress=False)
        assert made.detector == guard.detector


def test_scores_are_those_of_the_folder(guard: Guard, digits: Path, stores: Path, tmp_path: Path) -> None:
    guard.save(tmp_path / "guard.safetensors")
    given = {
        "folder.csv": [str(digits / "test")],
        "tar.csv": [f"{stores}/test-*.tar", "--page", "page.html"],
        "parquet.csv": [f"{stores}/test.parquet", "--column", "picture"],
        "remote.csv": [f"file://{digits}/test"],
    }
    rows = {}
    for out, images in given.items():
        words = ("score", "--guard", "guard.safetensors", "--model", MODEL, "--out", out, "--images", *images)
        run = call(*words, cwd=tmp_path)
        assert (run.returncode, run.stderr) == (0, "")
        rows[out] = [line.partition(",") for line in (tmp_path / out).read_text().splitlines()]
        assert [row[2] for row in rows[out]] == [row[2] for row in rows["folder.csv"]]
    assert rows["tar.csv"][60][0] == f"{stores}/test-1.tar/0009.png"
    assert rows["parquet.csv"][60][0] == f"{stores}/test.parquet/59"
    assert (tmp_path / "page.html").read_text().count("data:image") > 0


def test_calibration_images_that_were_trained_on_are_refused_in_any_store(digits: Path, stores: Path) -> None:
    words = ("fit", "--model", MODEL, "--images", str(digits / "train"), "--out", "g.safetensors", "--cache", "none")
    run = call(*words, "--calibrate", f"{stores}/train-0.tar", cwd=stores)
    assert run.returncode == 2
    assert "200 of the 200 calibration images are training images too" in run.stderr
