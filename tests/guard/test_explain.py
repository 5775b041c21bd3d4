"""Why an image was rejected: every figure of an explanation is recomputed here from the network's own outputs."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import PIL.Image
import pytest
import torch

from oodshape import Classifier, Guard, InputError
from oodshape.guard.explain import Explanation
from oodshape.guard.fit.samples import Samples
from oodshape.images.sources.listing import image_set
from oodshape.networks.zoo import build

MODEL = "zoo:digits-convnet"


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
    names = [component.name for component in fused.detector.scorer.components]
    assert len(names) > 2
    for why in told:
        assert [opinion.method for opinion in why.components] == names
        p_values = torch.tensor([[opinion.p_value] for opinion in why.components], dtype=torch.float64)
        if p_values.min() > 0:
            fused_p = fused.detector.scorer.fuse(p_values.log().float())
            assert why.score == pytest.approx(float(fused_p), rel=1e-3, abs=1e-3)


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
