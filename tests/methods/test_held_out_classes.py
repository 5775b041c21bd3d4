"""The second proxy of auto: classes left out of the head, its limits, what the record says, held-out images."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data import arrays, features, proxy
from oodshape import METHODS, Features, InputError, Method, auroc
from oodshape.features.proxy import crossed_features
from oodshape.methods.auto import CROSSED, Auto, split
from oodshape.methods.fusion import SCRAMBLED
from oodshape.methods.held_out_classes import HeldOutClasses

AUTO = Method(score=Auto())


def values_of(data: Features) -> np.ndarray:
    return torch.cat([raw for _, raw in data.chunks()]).numpy()


def test_the_classes_left_out_are_those_of_the_whole_head() -> None:
    fitting, selection = features(300), features(200, seed=1)
    near = HeldOutClasses.of(fitting, selection)
    assert (near.left_out, near.classes, near.fitting.head.classes) == (1, 7, 6)
    # the row of the head that is missing says which class was left out
    rows = [row.tolist() for row in near.inside.head.weight]
    (gone,) = [place for place, row in enumerate(fitting.head.weight) if row.tolist() not in rows]
    predicted = selection.predictions.numpy()
    np.testing.assert_array_equal(values_of(near.outside), values_of(selection)[predicted == gone])
    np.testing.assert_array_equal(values_of(near.inside), values_of(selection)[predicted != gone])
    np.testing.assert_array_equal(values_of(near.fitting), values_of(fitting)[fitting.predictions.numpy() != gone])
    # an image of a class that stays keeps its class; one of the class left out gets another
    stays = [place for place in range(7) if place != gone]
    assert [stays[c] for c in near.inside.predictions] == predicted[predicted != gone].tolist()
    assert str(near) == f"{len(near.outside)} images of 1 of 7 classes, held out"


def test_the_worth_is_the_auroc_of_the_smaller_network() -> None:
    fitting, selection = features(300), features(200, seed=1)
    near = HeldOutClasses.of(fitting, selection)
    detector = METHODS["energy"].fit(near.fitting)
    assert near.aurocs({"": METHODS["energy"]})[""] == auroc(detector.score(near.inside), detector.score(near.outside))
    assert near.aurocs({"energy": METHODS["energy"]})["energy"] > 0.55  # the class is told from the others
    z, head = arrays(300)
    classes = np.arange(300) % 7
    negative = Features.from_arrays(-z - 1, head, predictions=classes)
    assert HeldOutClasses.of(negative, negative).aurocs({"": METHODS["bfact"]})[""] == 0.5  # it refuses


@pytest.mark.parametrize(
    ("classes", "n", "why"),
    [
        (2, 200, "the network has 2 classes, and 2 must remain"),
        (7, 40, "selection images on one side, 10 needed"),
    ],
)
def test_too_little_is_refused(classes: int, n: int, why: str) -> None:
    z, head = arrays(n, classes=classes)
    data = Features.from_arrays(z, head)
    with pytest.raises(InputError, match=why):
        HeldOutClasses.of(data, data)


def test_most_images_in_the_classes_left_out_are_refused() -> None:
    z, (weight, bias) = arrays(400)
    data = Features.from_arrays(z, (weight, bias))
    near = HeldOutClasses.of(data, data)
    rows = [row.tolist() for row in near.inside.head.weight]
    (gone,) = [place for place, row in enumerate(data.head.weight) if row.tolist() not in rows]
    rare = np.where(np.arange(400) % 5 < 3, gone, (gone + 1) % 7)
    crowded = Features.from_arrays(z, (weight, bias), predictions=rare)
    with pytest.raises(InputError, match="240 of 400 images belong to the held-out classes, more than half"):
        HeldOutClasses.of(crowded, crowded)


def test_without_classes_to_hold_out_the_other_sets_decide_and_it_says_so() -> None:
    z, head = arrays(400, classes=2)
    images = Features.from_arrays(np.random.default_rng(0).permuted(arrays(100, classes=2, seed=9)[0], axis=1), head)
    fusion = AUTO.fit(Features.from_arrays(z, head), proxy=[images]).scorer
    assert fusion.proxies == (SCRAMBLED, CROSSED)
    assert fusion.notes[0] == "no classes were held out: the network has 2 classes, and 2 must remain"


def test_feature_arrays_alone_are_enough() -> None:
    train, test = features(400), features(60, seed=2)
    detector = AUTO.fit(train)
    fusion = detector.scorer
    assert fusion.against_scrambled is None
    assert "no scrambled images" in fusion.notes[0]
    fitting, selection = split(train, 0.25)
    near, crossed = HeldOutClasses.of(fitting, selection), crossed_features(selection)
    assert fusion.proxies == (str(near), CROSSED)
    fitted = METHODS["energy"].fit(fitting)
    values = dict(zip(dict(fusion.ranking), fusion.values, strict=True))["energy"]
    wanted = near.aurocs({"": METHODS["energy"]})[""], auroc(fitted.score(selection), fitted.score(crossed))
    assert values == pytest.approx(wanted)
    assert torch.isfinite(detector.score(test)).all()


def test_held_out_images_choose_where_they_are_given() -> None:
    train, held, images = features(300), features(200, seed=5), proxy()
    fusion = Method(score=Auto(candidates=("energy", "msp"))).fit(train, proxy=[images], held_out=held).scorer
    near = HeldOutClasses.of(train, held)
    for name, (value, far, _) in zip(dict(fusion.ranking), fusion.values, strict=True):
        fitted = METHODS[name].fit(train)
        assert far == auroc(fitted.score(held), fitted.score(images))
        assert value == near.aurocs({"": METHODS[name]})[""]
    assert len(fusion.components[0].reference) == 200
    z, (weight, bias) = arrays(50)
    other = Features.from_arrays(z, (weight + 1, bias))
    with pytest.raises(InputError, match="the held-out part comes from head"):
        AUTO.fit(train, proxy=[images], held_out=other)


@pytest.mark.parametrize("known", [True, False])
def test_a_network_that_knows_its_images_by_heart_is_named(known: bool) -> None:
    z, head = arrays(400)
    plain = Features.from_arrays(z, head)
    labels = plain.predictions.numpy() if known else np.full(400, 3)
    train = Features.from_arrays(z, head, labels=labels)
    notes = AUTO.fit(train, proxy=[proxy()]).scorer.notes
    assert [("has memorised" in note and "accuracy 100.0 %" in note) for note in notes] == [True] * known
    assert AUTO.fit(train, proxy=[proxy()], held_out=features(200, seed=5)).scorer.notes == ()
