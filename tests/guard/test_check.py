"""A check on images of one's own, and why an image was rejected: every figure is recomputed here."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from oodshape import METHODS, Classifier, Guard, InputError, evaluate
from oodshape.guard.explain import Explanation
from oodshape.networks.model_names import imagenet_classes
from oodshape.networks.zoo import build
from oodshape.report.pages.check_page import verdict, write_check_page

MODEL = "zoo:digits-convnet"


def test_the_check_by_hand(guard: Guard, digits: Path, tmp_path: Path) -> None:
    found = guard.check(digits / "test", {"some letters": digits / "letters"}, model=MODEL, progress=False)
    rows = {(row["detector"], row["set"]): row for row in found.rows()}
    assert set(rows) == {(d, s) for d in ("guard", "softmax") for s in ("test", "some letters")}
    scored = list(guard.score(digits / "letters", model=MODEL))
    mine = rows["guard", "some letters"]
    assert mine["accepted"] == sum(row.accepted for row in scored)
    inside = [row.score for row in guard.score(digits / "test", model=MODEL)]
    wins = np.mean([[i > o.score for o in scored] for i in inside])
    assert mine["auroc"]["value"] == pytest.approx(wins, abs=1e-3)
    softmax = guard.about.baseline
    assert softmax.method == METHODS["msp"]
    assert len(softmax.calibration) == len(guard.detector.calibration)
    low, high = found.guaranteed
    assert low <= found.rejected <= high
    assert "consistent with the guarantee" in verdict(found)
    write_check_page(found, tmp_path / "check.html")
    page = (tmp_path / "check.html").read_text()
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")  # a name, no request
    (tmp_path / "empty.png").touch()
    with pytest.raises(InputError, match="no image of"):
        guard.check(digits / "test", tmp_path / "empty.png", model=MODEL)


@pytest.mark.parametrize("part", ["train", "val"])
@pytest.mark.parametrize("limit", [None, 40])
def test_images_that_the_guard_has_used_say_nothing_about_the_guarantee(
    guard: Guard, digits: Path, tmp_path: Path, part: str, limit: int | None
) -> None:
    guard.save(tmp_path / "guard.safetensors")
    saved, files = Guard.load(tmp_path / "guard.safetensors"), sorted((digits / part).rglob("*.png"))
    count = len(files) if limit is None else limit
    with pytest.warns(UserWarning, match=f"{count} of the {count} ID images are known to have been used"):
        found = saved.check(digits / part, digits / "letters", model=MODEL, progress=False, limit=limit)
    assert f"nothing about the guarantee: {count} of these images" in verdict(found)
    some = [*files[:7], *sorted((digits / "test").iterdir())]
    with pytest.warns(UserWarning, match=f"7 of the {len(some)} ID images are known to have been used"):
        guard.check(some, digits / "letters", model=MODEL, progress=False)
    new = guard.calibrate(digits / "test", MODEL, progress=False)
    with pytest.warns(UserWarning, match="100 of the 100 ID images are known to have been used"):
        new.check(digits / "test", digits / "letters", model=MODEL, progress=False)


def test_copies_and_images_on_both_sides_raise_a_warning(guard: Guard, digits: Path) -> None:
    files = sorted(map(str, (digits / "test").iterdir()))
    with pytest.warns(UserWarning, match="30 of the 60 images of .* are copies of others"):
        guard.check(2 * files[:30], digits / "letters", model=MODEL, progress=False)
    with pytest.warns(UserWarning, match="10 of the 10 OOD images of same are ID images too"):
        guard.check(files, {"same": files[:10]}, model=MODEL, progress=False)
    with pytest.warns(UserWarning, match="OOD images of val are ID images too, .* used to fit or calibrate this guard"):
        guard.check(files, digits / "val", model=MODEL, progress=False)


def test_labels_that_are_not_the_networks_classes(guard: Guard, digits: Path, tmp_path: Path) -> None:
    def listed(name: str, label: Callable[[int], int]) -> str:
        files = sorted((digits / "val").rglob("*.png"))
        lines = [f"{file},{label(guard.about.classes.index(file.parent.name))}" for file in files]
        (tmp_path / name).write_text("\n".join(["path,label", *lines]))
        return str(tmp_path / name)

    one_based, said = listed("list.csv", lambda k: k + 1), r"label 8 is not in 0\.\.7: the network has 8 classes"
    with pytest.raises(InputError, match=said):
        Guard.fit(MODEL, images=one_based, calibrate=digits / "test", method="msp", progress=False)
    with pytest.raises(InputError, match=said):
        evaluate(MODEL, train=digits / "train", id=one_based, ood={"a": digits / "letters"}, methods="msp", cache=None)
    wrong, by_chance = listed("list.csv", lambda k: k - 1), r"the labels are predicted as by chance \(0.0 % of"
    with pytest.warns(UserWarning, match=by_chance):
        evaluate(MODEL, train=digits / "train", id=wrong, ood={"a": digits / "letters"}, methods="msp", cache=None)
    swapped = listed("list.csv", lambda k: k if k < 6 else 13 - k)
    with pytest.warns(UserWarning, match="most images with label 6 the class 7: the accuracy is wrong if"):
        evaluate(MODEL, train=digits / "train", id=swapped, ood={"a": digits / "letters"}, methods="msp", cache=None)


pytestmark = pytest.mark.filterwarnings("ignore:.*are known to have been used")


def test_folders_of_imagenet_have_names(digits: Path, tmp_path: Path) -> None:
    ids, names = zip(*list(imagenet_classes().items())[:8], strict=True)
    for each in ("train", "val"):
        shutil.copytree(digits / each, tmp_path / each)
        for number, name in enumerate(ids):
            (tmp_path / each / f"digit {number}").rename(tmp_path / each / name)
    made = Guard.fit(MODEL, images=tmp_path / "train", calibrate=tmp_path / "val", method="msp", progress=False)
    assert made.classes == names


@pytest.fixture(scope="module")
def fused(digits: Path) -> Guard:
    """A guard that fuses several methods."""
    given = {"images": digits / "train", "calibrate": digits / "val", "progress": False}
    return Guard.fit(MODEL, method="auto", **given)


@pytest.fixture(scope="module")
def letters(digits: Path) -> list[str]:
    return sorted(map(str, (digits / "letters").iterdir()))[:12]


@pytest.fixture(scope="module")
def told(fused: Guard, letters: list[str]) -> list[Explanation]:
    return fused.explain(letters, MODEL, progress=False)


@pytest.fixture(scope="module")
def outputs(fused: Guard, letters: list[str]):
    return Classifier(build("digits-convnet"))(fused.preprocessing.batch(PIL.Image.open(path) for path in letters))


def test_it_agrees_with_the_scores(fused: Guard, letters: list[str], told: list[Explanation]) -> None:
    for row, why in zip(fused.score(letters, MODEL), told, strict=True):
        assert (why.path, why.guesses[0].label, why.accepted) == (row.path, row.label, row.accepted)
        assert (why.score, why.p_value) == (pytest.approx(row.score, rel=1e-4), row.p_value)
        assert why.accepted == (why.score >= why.threshold)


def test_the_guesses_are_the_largest_probabilities(fused: Guard, told: list[Explanation], outputs) -> None:
    probabilities = torch.softmax(outputs.logits, dim=1)
    for why, row in zip(told, probabilities, strict=True):
        best = torch.argsort(row, descending=True)[:3].tolist()
        assert [guess.label for guess in why.guesses] == [fused.about.classes[label] for label in best]
        assert [guess.probability for guess in why.guesses] == pytest.approx(row[best].tolist(), rel=1e-3)


def test_the_members_make_up_the_score(fused: Guard, told: list[Explanation]) -> None:
    scorer = fused.detector.scorer
    names, filters = ([each.name for each in group] for group in (scorer.components, scorer.filters))
    assert len(names) > 2
    for why in told:
        assert [opinion.method for opinion in why.components] == names + filters
        p_values = torch.tensor([[opinion.p_value] for opinion in why.components], dtype=torch.float64)
        if p_values.min() > 0:
            assert why.score == pytest.approx(float(scorer.fuse(p_values.log().float())), rel=1e-3, abs=1e-3)


def test_an_image_that_cannot_be_read_says_why(guard: Guard, letters: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    broken, whole = guard.explain([str(tmp_path / "empty.png"), letters[0]], MODEL)
    assert broken == Explanation(broken.path, error="is not a readable image")
    assert whole.accepted is not None
    (alone,) = guard.explain([str(tmp_path / "empty.png")], MODEL)
    assert alone == broken
