"""Guard.fit, score and check on images in memory, data loaders, tars and Parquet: the same as on files."""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from commands import call
from oodshape import Classifier, Features, Guard, InputError
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.open_images import in_column, open_images
from oodshape.networks.zoo import build

MODEL = "zoo:digits-convnet"
NAMES = tuple(f"digit {i}" for i in range(8))
SAME_FIT = 2e-3  # relative: in other batches a feature may round into the next interval of theta, or of float16


class Digits:
    """A map-style data set: (image, label) as torchvision's sets give them, or tensors that are prepared."""

    classes = NAMES

    def __init__(self, images: NDArray[np.uint8], labels: NDArray[np.int64], prepared: bool = False) -> None:
        self.images, self.labels_of, self.prepared = images, labels, prepared

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, row: int) -> tuple[Any, int]:
        image: Any = DIGITS(self.images[row]) if self.prepared else PIL.Image.fromarray(self.images[row])
        return image, int(self.labels_of[row])


def pixels(folder: Path) -> NDArray[np.uint8]:
    """The images of a folder, in its order, as one gray array."""
    images = open_images(folder)
    return np.stack([np.asarray(images[row])[:, :, 0] for row in range(len(images))])


def data_set(folder: Path, prepared: bool = False) -> Digits:
    return Digits(pixels(folder), open_images(folder).labels, prepared)


def same(guard: Guard, other: Guard) -> None:
    assert guard.detector.threshold == pytest.approx(other.detector.threshold, rel=1e-4)
    np.testing.assert_allclose(guard.detector.calibration, other.detector.calibration, rtol=1e-4)
    assert guard.about.classes == other.about.classes
    assert guard.about.network == other.about.network


def fitted(images: Any, calibrate: Any, **more: Any) -> Guard:
    return Guard.fit(MODEL, images=images, calibrate=calibrate, method="optfs-e", progress=False, **more)


def test_a_data_set_makes_the_guard_that_its_files_make(guard: Guard, digits: Path) -> None:
    made = fitted(data_set(digits / "train"), data_set(digits / "val"))
    same(made, guard)
    assert made.about.classes == NAMES


def test_a_data_loader_with_prepared_tensors(guard: Guard, digits: Path) -> None:
    loaders = {
        name: DataLoader(data_set(digits / name, prepared=True), batch_size=50, shuffle=name == "train")
        for name in ("train", "val", "test", "letters")
    }
    made = fitted(loaders["train"], loaders["val"], prepared=True)
    assert made.detector.threshold == pytest.approx(guard.detector.threshold, rel=SAME_FIT)
    rows, files = list(made.score(loaders["test"], MODEL, prepared=True)), list(guard.score(digits / "test", MODEL))
    assert [row.path for row in rows] == [f"image {i}" for i in range(len(files))]
    np.testing.assert_allclose([row.score for row in rows], [row.score for row in files], rtol=SAME_FIT)
    assert NAMES[rows[0].label] == files[0].label
    check = made.check(loaders["test"], {"letters": loaders["letters"]}, MODEL, prepared=True)
    other = guard.check(digits / "test", digits / "letters", MODEL, progress=False)
    assert [each.name for each in (check.inside, *check.outside)] == ["ID", "letters"]
    assert check.compared(check.outside[0])["auroc"].value == pytest.approx(
        other.compared(other.outside[0])["auroc"].value, abs=0.01
    )


def test_features_of_every_kind(digits: Path) -> None:
    classifier = Classifier(build("digits-convnet"))
    forms = (digits / "val", open_images(digits / "val"), pixels(digits / "val")[..., None], data_set(digits / "val"))
    wanted, *others = (Features.extract(classifier, form, DIGITS, progress=False) for form in forms)
    others += [Features.extract(classifier, data_set(digits / "val", prepared=True), prepared=True, progress=False)]
    for found in others:
        torch.testing.assert_close(torch.as_tensor(found._values[:]), torch.as_tensor(wanted._values[:]))
    assert others[-1].accuracy == others[-2].accuracy == wanted.accuracy > 0.9
    with pytest.raises(InputError, match=r"preprocessing=\.\.\.\), or prepared=True"):
        Features.extract(classifier, digits / "val")


def test_copies_among_the_calibration_images_are_refused(guard: Guard, digits: Path, tmp_path: Path) -> None:
    train, val = pixels(digits / "train")[..., None], pixels(digits / "val")[..., None]
    for images in (digits / "train", train):
        with pytest.raises(
            InputError, match="1 of the 151 calibration images are training images too, such as image 0"
        ):
            fitted(images, np.concatenate([train[7:8], val]))
    renamed = [*open_images(digits / "val").files, tmp_path / "other.png"]
    renamed[-1].write_bytes(Path(open_images(digits / "train").files[3]).read_bytes())
    with pytest.raises(InputError, match=r"1 of the 151 calibration images .* such as .*other\.png"):
        fitted(digits / "train", renamed)
    for name, share in (("train", 50), ("val", 50)):
        for file in open_images(digits / name).files[:share]:
            PIL.Image.open(file).save(tmp_path / f"{name}-{Path(file).stem}.bmp")
    copies = [str(file) for file in sorted(tmp_path.glob("train-*.bmp"))]
    with pytest.raises(InputError, match="50 of the 200 calibration images are training images too"):
        fitted(digits / "train", [*open_images(digits / "val").files, *copies])
    with pytest.raises(InputError, match="50 of the 50 calibration images are images that fit used"):
        guard.calibrate(copies, MODEL, progress=False)
    guard.calibrate([str(file) for file in tmp_path.glob("val-*.bmp")], MODEL, progress=False)  # they only decided
    with pytest.warns(UserWarning, match="50 of the 50 ID images are known"):
        guard.check(copies, digits / "letters", MODEL, progress=False)
    tensors = torch.stack([DIGITS(image[..., 0]) for image in train[:100]])
    with pytest.raises(InputError, match="2 of the 60 calibration images .* such as image 58"):
        fitted(tensors, torch.cat([torch.stack([DIGITS(v[..., 0]) for v in val[:58]]), tensors[4:6]]), prepared=True)


def test_a_guard_of_tensors_says_what_it_does_not_know(digits: Path, tmp_path: Path) -> None:
    made = fitted(data_set(digits / "train", prepared=True), None, prepared=True)
    made.save(tmp_path / "guard.safetensors")
    made = Guard.load(tmp_path / "guard.safetensors")
    assert made.about.preprocessing is None
    with pytest.raises(InputError, match=r"fitted on prepared tensors .* prepared=True, or fit it with preprocessing"):
        made.score(digits / "test", MODEL)
    said = fitted(data_set(digits / "train", prepared=True), None, prepared=True, preprocessing=DIGITS)
    assert len(list(said.score(open_images(digits / "test").files[:3], MODEL))) == 3


@pytest.mark.parametrize(
    ("given", "more", "message"),
    [
        ("train", {}, "prepared=True takes .* got str"),
        (3, {}, "prepared=True takes .* got int"),
        ([], {}, "got an empty list"),
        (iter([]), {}, "the iterable is empty, or was used up"),
        ([torch.zeros(3)], {}, r"got a tensor \[3\] as batch 0"),
        (["a.png"], {}, "got str as batch 0"),
        (torch.zeros(4, 1, 16, 16), {"limit": 3}, "limit chooses among images"),
        (torch.zeros(4, 1, 16, 16), {}, "alpha = 0.05 needs 19 there, so 95 in all, got 4"),
    ],
)
def test_what_are_no_batches_is_refused(given: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(given, None, prepared=True, **more)


def test_batches_with_labels_of_every_form() -> None:
    held = load_digits_sets()["test"]
    images, labels = DIGITS.batch(held.images[:20]), torch.from_numpy(held.labels[:20].copy())
    classifier = Classifier(build("digits-convnet"))
    for batch in ((images, labels), [images, labels], {"pixel_values": images, "label": labels}):
        found = Features.extract(classifier, [batch], prepared=True)
        assert found.labels.tolist() == labels.tolist()
    assert Features.extract(classifier, [(images, ["a"] * 20)], prepared=True).labels.tolist() == [-1] * 20


pa = pytest.importorskip("pyarrow", reason="Parquet is read by pyarrow")
pq = pytest.importorskip("pyarrow.parquet", reason="Parquet is read by pyarrow")


@pytest.fixture(scope="module")
def stores(digits: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The training and the test images as tar files and as Parquet files."""
    root = tmp_path_factory.mktemp("stores")
    for name in ("train", "test"):
        files = open_images(digits / name).files
        table = {"picture": [Path(file).read_bytes() for file in files], "label": open_images(digits / name).labels}
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
