"""Rows of 2024 and later by hand, and methods that go by labels: when they do, and when they must not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data import arrays, features
from oodshape import METHODS, Features, InputError, Method
from oodshape.features.moments import Moments
from oodshape.methods.scores.class_means import She
from oodshape.methods.scores.logits import Tempered
from oodshape.methods.scores.mahalanobis import Mds, MdsPlus, Rmds, RmdsPlus, likeliest_share, oas_share
from oodshape.methods.scores.subspace import Neco

HEAD = (np.eye(2), np.zeros(2))  # logits = features
ROW = np.array([[3.0, 4.0]])  # class 1
CROSS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
TWO = np.concatenate([CROSS + np.array([4, 0]), CROSS + np.array([0, 4])])  # two round classes, scatter 4 within


def score(method: Method, train: np.ndarray, row: np.ndarray = ROW, labels: list[int] | None = None) -> float:
    fitted = method.fit(Features.from_arrays(train, HEAD, labels=None if labels is None else np.array(labels)))
    return float(fitted.score(Features.from_arrays(row, HEAD))[0])


def labelled(n: int = 300, *, order: int = 0, wrong: int = 5) -> Features:
    """Images whose labels are the predictions, every `wrong`-th the next class; all moved on by `order` classes."""
    z, head = arrays(n)
    classes = Features.from_arrays(z, head).predictions.numpy()
    labels = (classes + (np.arange(n) % wrong == 0) + order) % 7
    return Features.from_arrays(z, head, labels=labels)


def test_ora_by_hand() -> None:
    # seen from the mean (2, 2), the image lies at (1, 2), its projection on the diagonal at (1.5, 1.5)
    train = np.array([[4.0, 0.0], [0.0, 4.0]])
    assert score(METHODS["ora"], train) == pytest.approx((np.arctan(2) - np.pi / 4) / np.pi, rel=1e-5)


def test_neco_by_hand() -> None:
    # both features are the same: one axis, (1, 1), holds all variance; the image lies at (2, 3) from the mean
    train = np.array([[0.0, 0.0], [2.0, 2.0], [0.0, 0.0], [2.0, 2.0]])
    share = 5 / np.sqrt(2) / np.sqrt(13)
    assert score(Method(score=Neco(logit=False)), train) == pytest.approx(share, rel=1e-6)
    assert score(METHODS["neco"], train) == pytest.approx(4 * share, rel=1e-6)


def test_mahalanobis_of_raw_features_by_hand() -> None:
    # within classes the covariance is 4 / 6 in each direction, and shrinking leaves it; the image is 3 from (0, 4)
    assert score(METHODS["mds"], TWO) == pytest.approx(-9 / (4 / 6), rel=1e-5)
    # all images as one: a mean variance of 36 / 7, and a share of 1 as within; the image is sqrt(5) from (2, 2)
    assert score(METHODS["rmds"], TWO) == pytest.approx(-9 / (4 / 6) + 5 / (36 / 7), rel=1e-5)


@pytest.mark.parametrize("kind", [Mds, Rmds, MdsPlus, RmdsPlus])
def test_mahalanobis_goes_by_labels_that_are_in_order(kind: type[Mds]) -> None:
    # image (2.1, 2) is predicted as class 0 and labelled as class 1
    train = np.concatenate([TWO, [[2.1, 2.0]]])
    labels = [0] * 4 + [1] * 4 + [1]
    by = {classes: score(Method(score=kind(classes=classes)), train, labels=labels) for classes in ("labels", "auto")}
    moved = np.array([[4.0, 0.0]])
    assert by["labels"] == by["auto"]
    predicted = score(Method(score=kind()), train, labels=labels)
    assert by["auto"] != pytest.approx(predicted, rel=1e-3)
    # as if the network had predicted the labels
    told = Features.from_arrays(train, HEAD, predictions=np.array(labels))
    wanted = Method(score=kind()).fit(told).score(Features.from_arrays(moved, HEAD))
    assert score(Method(score=kind(classes="auto")), train, moved, labels) == pytest.approx(float(wanted[0]), rel=1e-6)


def test_she_takes_images_that_are_classified_correctly() -> None:
    train = np.array([[1.0, 5.0], [3.0, 7.0], [0.0, 90.0], [9.0, 0.0]])
    labels = [1, 1, 0, 0]  # the third is wrong
    assert score(METHODS["she"], train, labels=labels) == pytest.approx(3 * 2 + 4 * 6)
    assert score(Method(score=She()), train, labels=labels) == pytest.approx(3 * 4 / 3 + 4 * 102 / 3)


def test_she_without_correct_images_of_a_class_takes_those_predicted_as_it() -> None:
    train = np.array([[1.0, 5.0], [3.0, 7.0], [9.0, 0.0], [7.0, 0.0], [8.0, 1.0]])
    labels = [0, 0, 0, 0, 0]  # class 1 is predicted twice, never rightly
    assert score(METHODS["she"], train, labels=labels) == pytest.approx(3 * 2 + 4 * 6)  # of the mean (2, 6)
    head = (np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, -1.0]]), np.zeros(3))
    fitted = METHODS["she"].fit(Features.from_arrays(train, head, labels=np.array(labels)))
    np.testing.assert_allclose(fitted.scorer.means[2], train.mean(axis=0))  # never predicted


@pytest.mark.parametrize("name", ["she", "mds++", "rmds++", "mds", "rmds", "temperature"])
def test_labels_in_another_order_are_not_used(name: str) -> None:
    test, method = features(40, seed=1), METHODS[name]
    plain = method.fit(features(300)).score(test)
    torch.testing.assert_close(method.fit(labelled(order=1)).score(test), plain)  # another order
    z, head = arrays(300)
    some = Features.from_arrays(z, head, labels=np.where(np.arange(300) < 299, 0, -1))
    torch.testing.assert_close(method.fit(some).score(test), plain)  # a label is missing
    far = Features.from_arrays(z, head, labels=np.full(300, 7))
    torch.testing.assert_close(method.fit(far).score(test), plain)  # the network has 7 classes
    assert (method.fit(labelled()).score(test) - plain).abs().max() > 1e-3  # else this test says nothing


@pytest.mark.parametrize("name", ["she", "mds++", "rmds++", "mds", "rmds"])
def test_a_method_can_be_told_to_leave_labels_alone(name: str) -> None:
    test, method = features(40, seed=1), METHODS[name]
    plain = method.fit(features(300)).score(test)
    torch.testing.assert_close(method.unlabelled().fit(labelled()).score(test), plain)


@pytest.mark.parametrize("recipe", [She(classes="labels"), Mds(classes="labels"), RmdsPlus(classes="labels")])
def test_labels_that_were_asked_for_are_refused_with_the_reason(recipe) -> None:
    with pytest.raises(InputError, match="300 of 300 training images have no label"):
        Method(score=recipe).fit(features(300))
    with pytest.raises(InputError, match="predicts the label of only 0.0 % .* another order"):
        Method(score=recipe).fit(labelled(order=2, wrong=1000))


def test_bad_settings_are_one_clear_error() -> None:
    with pytest.raises(InputError, match="classes must be one of predicted, labels, auto, got 'both'"):
        Mds(classes="both")
    with pytest.raises(InputError, match="shrinkage must be one of oas, likelihood, got 'none'"):
        Rmds(shrinkage="none")
    with pytest.raises(InputError, match="variance"):
        Neco(variance=90)


@pytest.mark.parametrize("name", ["she", "mds++", "temperature"])
def test_parts_by_label_add_up(name: str) -> None:
    whole, method = labelled(), METHODS[name]
    parts = [whole[:120], whole[120:]]
    merged = Moments.of(parts[0], method.needs) + Moments.of(parts[1], method.needs)
    fitted = method.fit(parts[0].stats + parts[1].stats, head=whole.head, moments=merged)
    test = features(40, seed=1)
    at_once = method.fit(whole.stats, head=whole.head, moments=Moments.of(whole, method.needs))
    torch.testing.assert_close(fitted.score(test), at_once.score(test), rtol=1e-4, atol=1e-4)


def test_temperature_by_hand() -> None:
    # two logits 2 apart, and three of four labels right: the softmax is 3/4 where 2 / T = log 3
    train = Features.from_arrays(np.tile([2.0, 0.0], (4, 1)), HEAD, labels=np.array([0, 0, 0, 1]))
    fitted = METHODS["temperature"].fit(train)
    assert isinstance(fitted.scorer, Tempered)
    assert fitted.scorer.temperature == pytest.approx(2 / np.log(3), rel=1e-6)
    held_out = Features.from_arrays(np.tile([2.0, 0.0], (5, 1)), HEAD, labels=np.array([0, 0, 0, 0, 1]))
    fitted = METHODS["temperature"].fit(train, held_out=held_out)
    assert fitted.scorer.temperature == pytest.approx(2 / np.log(4), rel=1e-6)
    assert float(fitted.score(Features.from_arrays([[2.0, 0.0]], HEAD))[0]) == pytest.approx(np.log(0.8), rel=1e-5)


def test_temperature_is_the_one_of_the_largest_likelihood() -> None:
    from scipy.optimize import minimize_scalar

    train = labelled(600)
    logits = torch.cat([train.head.logits(raw) for _, raw in train.chunks()]).double()

    def surprise(log_t: float) -> float:
        return float(torch.nn.functional.cross_entropy(logits / np.exp(log_t), train.labels))

    wanted = np.exp(minimize_scalar(surprise, bounds=(-2, 2), method="bounded", options={"xatol": 1e-9}).x)
    method = METHODS["temperature"]
    assert method.fit(train).scorer.temperature == pytest.approx(wanted, rel=1e-5)
    from_sums = method.fit(train.stats, head=train.head, moments=Moments.of(train, method.needs))
    assert from_sums.scorer.temperature == pytest.approx(wanted, rel=0.01)


def test_a_share_of_held_out_likelihood_is_near_the_true_one() -> None:
    """Left out one by one for real: the closed form picks a share that is as likely, to 1 % of a nat per feature."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(40, 15)) * np.linspace(0.3, 3, 15)

    def surprise(share: float) -> float:
        total = 0.0
        for i in range(len(rows)):
            rest = np.delete(rows, i, axis=0)
            s = rest.T @ rest / len(rest)
            s = (1 - share) * s + share * np.trace(s) / 15 * np.eye(15)
            total += np.linalg.slogdet(s)[1] + rows[i] @ np.linalg.solve(s, rows[i])
        return total / len(rows) / 2

    best = min(surprise(share) for share in 2.0 ** (np.arange(-40, 1) / 4))
    chosen = likeliest_share(rows.T @ rows, 40)
    assert surprise(chosen) < best + 0.15
    assert surprise(chosen) < surprise(1e-3) - 0.5
    assert 0 < oas_share(rows.T @ rows, 40) < 1
