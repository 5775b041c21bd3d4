"""A check on images of one's own, and why an image was rejected: every figure is recomputed here."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from oodshape import METHODS, Classifier, Guard, InputError, evaluate
from oodshape.guard.check import Check, compute_exact_rate
from oodshape.guard.explain import Explanation
from oodshape.images.datasets.digits import load_digits_sets
from oodshape.images.sources.image_set import ArraySet
from oodshape.networks.model_names import imagenet_classes
from oodshape.networks.zoo import build
from oodshape.report.pages.check_page import describe_accuracy, verdict, write_check_page

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


def test_labels_that_are_not_the_networks_classes(guard: Guard, digits: Path, tmp_path: Path) -> None:
    def listed(name: str, shift: int) -> str:
        files = sorted((digits / "val").rglob("*.png"))
        lines = [f"{file},{guard.about.classes.index(file.parent.name) + shift}" for file in files]
        (tmp_path / name).write_text("\n".join(["path,label", *lines]))
        return str(tmp_path / name)

    one_based, said = listed("list.csv", 1), r"label 8 is not in 0\.\.7: the network has 8 classes"
    with pytest.raises(InputError, match=said):
        guard.check(one_based, digits / "letters", model=MODEL, progress=False)
    with pytest.raises(InputError, match=said):
        Guard.fit(MODEL, images=one_based, calibrate=digits / "test", method="msp", progress=False)
    with pytest.raises(InputError, match=said):
        evaluate(MODEL, train=digits / "train", id=one_based, ood={"a": digits / "letters"}, methods="msp", cache=None)
    # the OOD images' labels are their own
    assert guard.check(digits / "test", one_based, model=MODEL, progress=False).outside[0].labels is None
    wrong, by_chance = listed("list.csv", -1), r"the labels are predicted as by chance \(0.0 % of"
    with pytest.warns(UserWarning, match=by_chance):
        guard.check(wrong, digits / "letters", model=MODEL, progress=False)
    with pytest.warns(UserWarning, match=by_chance):
        evaluate(MODEL, train=digits / "train", id=wrong, ood={"a": digits / "letters"}, methods="msp", cache=None)


def test_exact_shares() -> None:
    from scipy.stats import binom

    for count, of in ((0, 10), (3, 10), (10, 10), (250, 300)):
        share = compute_exact_rate(count, of)
        assert share.low <= share.value <= share.high
        if count:
            assert binom(of, share.low).sf(count - 1) == pytest.approx(0.025, rel=1e-6)
        if count < of:
            assert binom(of, share.high).cdf(count) == pytest.approx(0.025, rel=1e-6)


pytestmark = pytest.mark.filterwarnings("ignore:.*are known to have been used")


@pytest.fixture(scope="module")
def check(guard: Guard, digits: Path) -> Check:
    return guard.check(digits / "val", digits / "letters", model=MODEL, progress=False)


def test_folders_are_classes_by_their_names(check: Check, guard: Guard, digits: Path) -> None:
    names = [Path(path).parent.name for path, _ in check.inside.pairs]
    assert [guard.about.classes[label] for label in check.inside.labels] == names
    assert check.outside[0].labels is None


def test_the_figures_by_hand(check: Check) -> None:
    # the network is right on all of these: make it wrong on some
    inside = check.inside
    wrong = np.arange(len(inside.labels)) % 7 == 0
    labels = np.where(wrong, (inside.classes + 1) % 8, inside.classes)
    labels[3] = -1  # not known
    known = labels >= 0
    found = replace(check, inside=replace(inside, labels=labels)).selective
    assert found.images == len(labels) - 1
    right = inside.classes == labels
    assert found.accuracy == compute_exact_rate(int(right[known].sum()), int(known.sum()))
    for name, scores in inside.judged.items():
        kept = scores.passed & known
        assert found.accepted[name] == compute_exact_rate(int(right[kept].sum()), int(kept.sum()))
    (line,) = describe_accuracy(replace(check, inside=replace(inside, labels=labels)))
    assert f"accuracy {100 * found.accuracy.value:.1f} % on" in line


def test_without_labels_there_is_nothing_to_say(guard: Guard, digits: Path) -> None:
    found = guard.check(digits / "letters", digits / "test", model=MODEL, progress=False)
    assert found.selective is None
    assert describe_accuracy(found) == []


def test_lists_and_data_sets_bring_numbers(guard: Guard, digits: Path, tmp_path: Path) -> None:
    files = sorted((digits / "val").rglob("*.png"))[:30]
    lines = [f"{file},{guard.about.classes.index(file.parent.name)}" for file in files]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines]))
    given = guard.check(str(tmp_path / "list.csv"), digits / "letters", model=MODEL, progress=False)
    assert [guard.about.classes[label] for label in given.inside.labels] == [file.parent.name for file in files]
    held = load_digits_sets()["test"]
    some = ArraySet("some", held.images[:20], held.labels[:20])
    assert guard.check(some, digits / "letters", model=MODEL, progress=False).inside.labels.tolist() == (
        held.labels[:20].tolist()
    )


def test_folders_of_imagenet_have_names(digits: Path, tmp_path: Path) -> None:
    ids, names = zip(*list(imagenet_classes().items())[:8], strict=True)
    for each in ("train", "val"):
        shutil.copytree(digits / each, tmp_path / each)
        for number, name in enumerate(ids):
            (tmp_path / each / f"digit {number}").rename(tmp_path / each / name)
    made = Guard.fit(MODEL, images=tmp_path / "train", calibrate=tmp_path / "val", method="msp", progress=False)
    assert made.classes == names
    found = made.check(tmp_path / "val", digits / "letters", model=MODEL, progress=False)
    assert found.selective.accuracy.value > 0.9


def test_foreign_folders_are_no_classes(guard: Guard, digits: Path, tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        (tmp_path / "days" / name).mkdir(parents=True)
        for file in sorted((digits / "test").iterdir())[:3]:
            (tmp_path / "days" / name / file.name).symlink_to(file)
    assert guard.check(tmp_path / "days", digits / "letters", model=MODEL, progress=False).inside.labels is None


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
