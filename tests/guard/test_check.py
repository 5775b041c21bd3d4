"""A check on images of one's own, and why an image was rejected: every figure is recomputed here."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from oodshape import METHODS, Classifier, Guard, InputError
from oodshape.guard.check import Check, exact_share
from oodshape.guard.explain import Explanation
from oodshape.guard.fit.samples import Samples
from oodshape.images.datasets.digits import digits_sets
from oodshape.images.sources.image_set import ArraySet
from oodshape.images.sources.listing import image_set
from oodshape.networks.zoo import build
from oodshape.report.pages.check_page import right_line, verdict, write_check

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
    write_check(found, tmp_path / "check.html")
    page = (tmp_path / "check.html").read_text()
    assert "http" not in page.replace("http-equiv", "").replace("http://www.w3.org/2000/svg", "")  # a name, no request
    (tmp_path / "empty.png").touch()
    with pytest.raises(InputError, match="no image of"):
        guard.check(digits / "test", tmp_path / "empty.png", model=MODEL)


def test_exact_shares() -> None:
    from scipy.stats import binom

    for count, of in ((0, 10), (3, 10), (10, 10), (250, 300)):
        share = exact_share(count, of)
        assert share.low <= share.value <= share.high
        if count:
            assert binom(of, share.low).sf(count - 1) == pytest.approx(0.025, rel=1e-6)
        if count < of:
            assert binom(of, share.high).cdf(count) == pytest.approx(0.025, rel=1e-6)


pytestmark = pytest.mark.filterwarnings("ignore:.*are scores of the calibration images")


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
    assert found.accuracy == exact_share(int(right[known].sum()), int(known.sum()))
    for name, scores in inside.judged.items():
        kept = scores.passed & known
        assert found.accepted[name] == exact_share(int(right[kept].sum()), int(kept.sum()))
        order = np.argsort(-scores.values[known], kind="stable")
        errors = ~right[known][order]
        mean = np.mean([errors[: k + 1].mean() for k in range(len(errors))])
        assert found.aurc[name] == pytest.approx(mean, abs=0.01)  # equal scores have no order
    (line,) = right_line(replace(check, inside=replace(inside, labels=labels)))
    assert f"accuracy {100 * found.accuracy.value:.1f} % on" in line


def test_without_labels_there_is_nothing_to_say(guard: Guard, digits: Path) -> None:
    found = guard.check(digits / "letters", digits / "test", model=MODEL, progress=False)
    assert found.selective is None
    assert right_line(found) == []


def test_lists_and_data_sets_bring_numbers(guard: Guard, digits: Path, tmp_path: Path) -> None:
    files = sorted((digits / "val").rglob("*.png"))[:30]
    lines = [f"{file},{guard.about.classes.index(file.parent.name)}" for file in files]
    (tmp_path / "list.csv").write_text("\n".join(["path,label", *lines]))
    given = guard.check(str(tmp_path / "list.csv"), digits / "letters", model=MODEL, progress=False)
    assert [guard.about.classes[label] for label in given.inside.labels] == [file.parent.name for file in files]
    held = digits_sets()["test"]
    some = ArraySet("some", held.images[:20], held.labels[:20])
    assert guard.check(some, digits / "letters", model=MODEL, progress=False).inside.labels.tolist() == (
        held.labels[:20].tolist()
    )


def test_foreign_folders_are_no_classes(guard: Guard, digits: Path, tmp_path: Path) -> None:
    for name in ("monday", "tuesday"):
        (tmp_path / "days" / name).mkdir(parents=True)
        for file in sorted((digits / "test").iterdir())[:3]:
            (tmp_path / "days" / name / file.name).symlink_to(file)
    assert guard.check(tmp_path / "days", digits / "letters", model=MODEL, progress=False).inside.labels is None


@pytest.fixture(scope="module")
def fused(digits: Path) -> Guard:
    """A guard that fuses several methods and keeps images."""
    given = {"images": digits / "train", "calibrate": digits / "val", "progress": False}
    return Guard.fit(MODEL, method="auto", keep_samples=30, **given)


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


def test_the_impacts_are_weights_times_features(guard: Guard, letters: list[str], outputs) -> None:
    shaped = guard.detector.shape(outputs.features)
    for row, why in enumerate(guard.explain(letters, MODEL)):
        weight = outputs.head.weight[outputs.logits[row].argmax()]
        before, after = (weight * outputs.features[row]).tolist(), (weight * shaped[row]).tolist()
        assert why.shaped_by == "optfs-e"
        order = sorted(range(len(before)), key=lambda place: before[place])
        for found, wanted in ((why.supporting, order[::-1][:5]), (why.opposing, order[:5])):
            wanted = [place for place in wanted if (before[place] > 0) == (found is why.supporting) and before[place]]
            assert [impact.before for impact in found] == pytest.approx([before[i] for i in wanted], rel=1e-3)
            for impact in found:
                assert impact.before == pytest.approx(before[impact.feature], rel=1e-3)
                assert impact.after == pytest.approx(after[impact.feature], rel=1e-3, abs=1e-5)
                assert impact.value == pytest.approx(float(outputs.features[row, impact.feature]), rel=1e-3)


def test_the_nearest_are_the_nearest_of_those_kept(
    fused: Guard, told: list[Explanation], outputs, digits: Path
) -> None:
    kept = fused.about.samples
    assert isinstance(kept, Samples)
    assert len(kept.names) == 30
    files = image_set(digits / "train")
    own = {"/".join(Path(file).parts[-2:]): row for row, file in enumerate(files.files)}
    net = Classifier(build("digits-convnet"))
    seen = net(fused.preprocessing.batch(files[own[name]] for name in kept.names))
    cosines = torch.nn.functional.normalize(outputs.features) @ torch.nn.functional.normalize(seen.features).T
    for why, row in zip(told, cosines, strict=True):
        assert [near.cosine for near in why.nearest] == pytest.approx(row.topk(3).values.tolist(), abs=1e-4)
        for near in why.nearest:
            assert near.name == kept.names[near.sample]
            assert float(row[near.sample]) == pytest.approx(near.cosine, abs=1e-4)
            assert near.label == fused.about.classes[int(seen.logits[near.sample].argmax())]
    pictures = [np.asarray(PIL.Image.open(io.BytesIO(kept.file(row))).convert("L"), float) for row in range(30)]
    for row, name in enumerate(kept.names):  # WebP loses a little
        gaps = [np.abs(picture - np.asarray(files[own[name]].convert("L"))).mean() for picture in pictures]
        assert int(np.argmin(gaps)) == row


def test_samples_are_saved_and_none_are_kept_unasked(fused: Guard, guard: Guard, tmp_path: Path) -> None:
    assert guard.about.samples is None
    assert guard.explain([np.zeros((8, 8), np.uint8)], MODEL)[0].nearest == ()
    fused.save(tmp_path / "guard.safetensors")
    assert Guard.load(tmp_path / "guard.safetensors") == fused


def test_an_image_that_cannot_be_read_says_why(guard: Guard, letters: list[str], tmp_path: Path) -> None:
    (tmp_path / "empty.png").touch()
    broken, whole = guard.explain([str(tmp_path / "empty.png"), letters[0]], MODEL)
    assert broken == Explanation(broken.path, error="is not a readable image")
    assert whole.accepted is not None
    (alone,) = guard.explain([str(tmp_path / "empty.png")], MODEL)
    assert alone == broken


def test_what_cannot_be_kept_is_refused(digits: Path, fused: Guard) -> None:
    for count in (-1, 10_001):
        with pytest.raises(InputError, match=r"keep_samples \(--keep-samples\) must lie in 0..10,000"):
            Guard.fit(MODEL, images=digits / "train", keep_samples=count)
    with pytest.raises(InputError, match="tensors and collected parts are no pictures"):
        Guard.fit(build("digits-convnet"), images=[torch.rand(4, 1, 16, 16)], prepared=True, keep_samples=3)
    kept = fused.about.samples
    with pytest.raises(InputError, match="30 kept images have 1 names"):
        Samples(kept.directions, kept.classes, ("one",), kept.pixels, kept.ends)
    with pytest.raises(InputError, match="one after the other"):
        Samples(kept.directions, kept.classes, kept.names, kept.pixels[:-1], kept.ends)
