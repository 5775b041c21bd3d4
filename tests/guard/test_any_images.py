"""Guard.fit, score and check on images in memory, data sets and data loaders: the same as on files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import PIL.Image
import pytest
import torch
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from oodshape import METHODS, Classifier, Features, Guard, InputError, proxy_features
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.decode.preprocessing import DIGITS
from oodshape.images.sources.listing import image_set
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
    images = image_set(folder)
    return np.stack([np.asarray(images[row])[:, :, 0] for row in range(len(images))])


def data_set(folder: Path, prepared: bool = False) -> Digits:
    return Digits(pixels(folder), image_set(folder).labels, prepared)


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


def test_arrays_pictures_and_tensors_too(guard: Guard, digits: Path) -> None:
    train, val = (pixels(digits / name)[..., None] for name in ("train", "val"))
    made = fitted(
        torch.from_numpy(train).permute(0, 3, 1, 2).float() / 255, [PIL.Image.fromarray(v[..., 0]) for v in val]
    )
    assert made.detector.threshold == pytest.approx(guard.detector.threshold, rel=SAME_FIT)
    assert made.about.classes == ()  # nothing says them
    rows = list(guard.score(val[:5], model=MODEL))
    files = list(guard.score(image_set(digits / "val").files[:5], model=MODEL))
    assert [row.path for row in rows] == [f"image {i}" for i in range(5)]
    assert [row[1:] for row in rows] == [row[1:] for row in files]


def test_labels_in_another_order_are_not_used(digits: Path) -> None:
    train = data_set(digits / "train")
    turned = Digits(train.images, (train.labels_of + 1) % 8)
    with pytest.warns(UserWarning, match="only .* % of the training images the class of their folder or label"):
        made = fitted(turned, data_set(digits / "val"))
    assert made.about.classes == ()


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


def test_the_panel_of_tensors_is_that_of_the_images(digits: Path) -> None:
    """The same noise in the same images: before and after the preprocessing they differ by rounding and clipping."""
    classifier, train = Classifier(build("digits-convnet")), pixels(digits / "train")[::4]
    tensors = DataLoader(Digits(train, np.zeros(100, np.int64), prepared=True), batch_size=64)
    of_images, *_ = proxy_features(classifier, train[..., None], DIGITS, progress=False)
    of_tensors, *_ = proxy_features(classifier, tensors, prepared=True, progress=False)
    assert len(of_images) == len(of_tensors) == 100
    scores = [METHODS["energy"].fit(each).score(each).sort().values for each in (of_images, of_tensors)]
    assert abs(scores[0].median() - scores[1].median()) < 0.2 * scores[0].std()


def test_features_of_every_kind(digits: Path) -> None:
    classifier = Classifier(build("digits-convnet"))
    forms = (digits / "val", image_set(digits / "val"), pixels(digits / "val")[..., None], data_set(digits / "val"))
    wanted, *others = (Features.extract(classifier, form, DIGITS, progress=False) for form in forms)
    others += [Features.extract(classifier, data_set(digits / "val", prepared=True), prepared=True, progress=False)]
    for found in others:
        torch.testing.assert_close(torch.as_tensor(found._values[:]), torch.as_tensor(wanted._values[:]))
    assert others[-1].accuracy == others[-2].accuracy == wanted.accuracy > 0.9
    with pytest.raises(InputError, match=r"preprocessing=\.\.\.\), or prepared=True"):
        Features.extract(classifier, digits / "val")


def test_copies_among_the_calibration_images_are_refused(digits: Path, tmp_path: Path) -> None:
    train, val = pixels(digits / "train")[..., None], pixels(digits / "val")[..., None]
    for images in (digits / "train", train):
        with pytest.raises(
            InputError, match="1 of the 151 calibration images are training images too, such as image 0"
        ):
            fitted(images, np.concatenate([train[7:8], val]))
    renamed = [*image_set(digits / "val").files, tmp_path / "other.png"]
    renamed[-1].write_bytes(Path(image_set(digits / "train").files[3]).read_bytes())
    with pytest.raises(InputError, match=r"1 of the 151 calibration images .* such as .*other\.png"):
        fitted(digits / "train", renamed)
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
    assert len(list(said.score(image_set(digits / "test").files[:3], MODEL))) == 3


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
        (torch.zeros(4, 1, 16, 16), {"cache": "cache"}, "not kept on disk"),
        (torch.zeros(4, 1, 16, 16), {}, "alpha = 0.05 needs 19 there, so 95 in all, got 4"),
    ],
)
def test_what_are_no_batches_is_refused(given: Any, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        fitted(given, None, prepared=True, **more)


def test_batches_with_labels_of_every_form() -> None:
    held = digits_sets()["test"]
    images, labels = DIGITS.batch(held.images[:20]), torch.from_numpy(held.labels[:20].copy())
    classifier = Classifier(build("digits-convnet"))
    for batch in ((images, labels), [images, labels], {"pixel_values": images, "label": labels}):
        found = Features.extract(classifier, [batch], prepared=True)
        assert found.labels.tolist() == labels.tolist()
    assert Features.extract(classifier, [(images, ["a"] * 20)], prepared=True).labels.tolist() == [-1] * 20
