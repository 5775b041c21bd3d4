"""Methods since the paper: rows computed by hand, their statistics, and what they do when data are poor."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from data import arrays, features
from oodshape import METHODS, Features, InputError, Method
from oodshape.features import moments as bank
from oodshape.features.moments import Moments
from oodshape.features.statistic import Statistic
from oodshape.methods.heads import Dice, Lts
from oodshape.methods.records import RECORDS
from oodshape.methods.scores.decision_boundary import Gen, Nci
from oodshape.methods.scores.nearest_neighbours import Knn, NnGuide
from oodshape.methods.scores.subspace import Vim
from oodshape.methods.shapes.ash import Scale
from oodshape.methods.shapes.bats_ras import Bats
from oodshape.methods.shapes.clipping import ReAct

# two features, two classes, logits = features; classes 0, 0, 1, 1; mean (2, 2)
TRAIN = np.array([[4.0, 0.0], [2.0, 0.0], [0.0, 6.0], [2.0, 2.0 + 2**-10]])
HEAD = (np.eye(2), np.zeros(2))
ROW = np.array([[3.0, 4.0]])  # class 1, energy 4 + log(1 + 1/e)
ENERGY = 4 + np.log1p(np.exp(-1))


def score(method: Method, train: np.ndarray = TRAIN, row: np.ndarray = ROW) -> float:
    return float(method.fit(Features.from_arrays(train, HEAD)).score(Features.from_arrays(row, HEAD))[0])


def e(*logits: float) -> float:
    return float(np.log(np.exp(logits).sum()))


P = 1 / (1 + np.exp(-1))  # of class 1
MEAN = np.array([2.0, 2.0 + 2**-12])
MEAN_1 = np.array([1.0, 4.0 + 2**-11])  # of the images of class 1


@pytest.mark.parametrize(
    ("method", "wanted"),
    [
        (Method(score=Gen(gamma=0.5)), -2 * np.sqrt(P * (1 - P))),
        (Method(score=Gen(gamma=0.5, top=1)), -np.sqrt(P * (1 - P))),
        (Method(shape=Scale(p=0.5)), e(3 * np.exp(7 / 4), 4 * np.exp(7 / 4))),
        (Method(head=Lts(share=0.5)), e(3 * 49 / 16, 4 * 49 / 16)),
        # sorted rows: (0, 4), (0, 2), (0, 6), (2, 2)
        (METHODS["ras"], e(0.5, 3.5 + 2**-12)),
        (METHODS["bats"], e(3.0, 4.0)),  # mean 2, standard deviation sqrt(2) and 2.45: inside
        (Method(shape=Bats(width=0.5)), e(2 + 0.5 * 2**0.5, MEAN[1] + 0.5 * TRAIN[:, 1].std())),
        (METHODS["gradnorm"], 7 * 2 * (2 * P - 1)),
        (METHODS["she"], float(ROW[0] @ MEAN_1)),
        (METHODS["fdbd"], 1 / 2**0.5 / np.linalg.norm(ROW[0] - MEAN)),
        (Method(score=Nci(alpha=0.1)), (4 - MEAN[1]) / np.linalg.norm(ROW[0] - MEAN) + 0.7),
        (METHODS["caref"], -np.abs(ROW[0] - MEAN_1).sum() / 7),
        # the error of feature 0 lies across w_1 = (0, 1) and does not count, that of feature 1 against it
        (METHODS["cadref"], -(2**-11) / 7),
        (Method(score=Knn(k=1)), -np.linalg.norm(ROW[0] / 5 - TRAIN[3] / np.linalg.norm(TRAIN[3]))),
        (Method(score=Knn(k=3)), -np.linalg.norm(ROW[0] / 5 - [1, 0])),
        (Method(score=NnGuide(k=1)), ENERGY * 0.8 * e(0.0, 6.0)),
    ],
    ids=lambda value: repr(value) if isinstance(value, Method) else "",
)
def test_by_hand(method: Method, wanted: float) -> None:
    assert score(method) == pytest.approx(wanted, rel=5e-6)


def test_cadref_by_hand() -> None:
    # (3, 9) - mean of class 1 is about (2, 5): the second lies along w_1 = (0, 1) and is scaled by the energy,
    # the first, of weight 0, has no side
    row = np.array([[3.0, 9.0]])
    usual = np.mean([e(*logits) for logits in TRAIN])
    wanted = -(5.0 - 2**-11) / 12 * usual / e(3.0, 9.0)
    assert score(METHODS["cadref"], row=row) == pytest.approx(wanted, rel=5e-6)


def test_vim_by_hand() -> None:
    # origin 0; the axes of these rows are the axes, the second is the smaller: residual |z_2|
    train = np.array([[3.0, 1.0], [3.0, -1.0], [5.0, 0.0]])
    alpha = (11 / 3) / (2 / 3)
    assert score(METHODS["vim"], train) == pytest.approx(ENERGY - alpha * 4, rel=1e-5)


def test_klm_by_hand() -> None:
    train = np.array([[2.0, 0.0], [1.0, 0.0]])  # class 1 is never predicted
    p = np.array([1 - P, P])
    template = np.mean([1 / (1 + np.exp(-2)), 1 / (1 + np.exp(-1))])
    wanted = -(p * np.log(p / np.array([template, 1 - template]))).sum()
    assert score(METHODS["klm"], train) == pytest.approx(wanted, rel=1e-5)


def test_mahalanobis_without_differences_in_direction_is_the_euclidean_distance() -> None:
    # within classes the directions vary alike in both dimensions: S is a multiple of 1
    angles = np.array([-0.2, 0.2])
    one = np.stack([np.cos(angles), np.sin(angles)], axis=1)
    train = np.concatenate([one, one[:, ::-1]])
    mean = np.array([np.cos(0.2), 0.0])
    s = 4 * np.sin(0.2) ** 2 / 2 / 2  # two free directions, over two dimensions
    wanted = -((ROW[0] / 5 - mean[::-1]) ** 2).sum() / s
    assert score(METHODS["mds++"], train) == pytest.approx(wanted, rel=1e-5)


@pytest.mark.parametrize("half", [True, False])
def test_moments_merge_in_any_order(half: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank, "BANK", 60)
    z, head = arrays(500, signed=True)
    z = z.astype(np.float16 if half else np.float32)
    whole = Moments.of(Features.from_arrays(z, head), frozenset(Statistic))
    cuts = ((0, 100), (100, 350), (350, 500))
    parts = [Features.from_arrays(z[first:last], head, identities=np.arange(first, last)) for first, last in cuts]
    a, b, c = (Moments.of(part, frozenset(Statistic)) for part in parts)
    assert whole.parts["bank"].shape == (60, 40)
    for merged in ((a + b) + c, c + (b + a)):
        assert (merged.n, merged.head) == (500, whole.head)
        for name, part in whole.parts.items():
            # sums in float64 of logits and directions in float32, which may round otherwise in smaller batches
            np.testing.assert_allclose(merged.parts[name], part, rtol=1e-6, atol=1e-5)
        assert np.array_equal(merged.parts["bank"], whole.parts["bank"])


def test_the_bank_is_a_fair_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bank, "BANK", 1000)
    z = np.random.default_rng(0).normal(size=(4000, 3)) + np.arange(4000)[:, None] / 1000
    kept = Moments.of(Features.from_arrays(z, (np.eye(3), np.zeros(3))), frozenset(["bank"])).parts["bank"]
    assert kept.mean() == pytest.approx(z.mean(), abs=0.12)
    assert kept.std() == pytest.approx(z.std(), rel=0.05)


def test_moments_are_refused_across_heads() -> None:
    data = features(50)
    made = Moments.of(data, frozenset(Statistic))
    with pytest.raises(InputError, match="different heads"):
        _ = made + Moments.of(Features.from_arrays(TRAIN, HEAD), frozenset(Statistic))
    with pytest.raises(InputError, match="no statistic is called 'magic'"):
        Moments.of(data, frozenset(["magic"]))


@pytest.mark.parametrize("name", [name for name in METHODS if RECORDS[name].block == "later"])
@pytest.mark.parametrize("signed", [False, True])
def test_few_images_and_unseen_classes_give_finite_scores(name: str, signed: bool) -> None:
    """9 images, 40 features, 7 classes of which some are never predicted, and dead features."""
    z, head = arrays(9, signed=signed)
    z[:, :5] = 0
    z[0] = z[1]
    train = Features.from_arrays(z, head)
    assert len(train.predictions.unique()) < 7
    test = features(100, seed=1, signed=signed)
    assert len(test.predictions.unique()) == 7
    scores = METHODS[name].fit(train).score(test)
    assert torch.isfinite(scores).all()
    assert len(scores.unique()) > 50


def test_one_image_per_class_uses_the_covariance_of_all() -> None:
    z, head = arrays(60)
    classes = Features.from_arrays(z, head).predictions.numpy()
    train = Features.from_arrays(z[np.unique(classes, return_index=True)[1]], head)
    for name in ("mds++", "rmds++"):
        assert torch.isfinite(METHODS[name].fit(train).score(features(20, seed=1))).all()
    with pytest.raises(InputError, match="at least 2 training images, got 1"):
        METHODS["mds++"].fit(train[:1])
    with pytest.raises(InputError, match="all the same"):
        METHODS["mds++"].fit(Features.from_arrays(np.array([[1.0, 2.0], [2.0, 4.0]]), HEAD))


@pytest.mark.parametrize("slot", [{"shape": ReAct()}, {"head": Dice()}, {"shape": Scale()}])
def test_scores_of_features_refuse_slots_they_would_ignore(slot: dict) -> None:
    with pytest.raises(InputError, match="Knn reads the features themselves"):
        Method(score=Knn(), **slot)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: Gen(gamma=0), "gamma must be positive, got 0"),
        (lambda: Gen(top=0), "top must be at least 1"),
        (lambda: Knn(k=0), "k must be at least 1, got 0"),
        (lambda: Vim(dimensions=0), "dimensions must be at least 1"),
        (lambda: Bats(width=0), "width must be positive"),
        (lambda: Scale(p=85), "did you mean 0.85"),
        (lambda: Lts(share=5), "did you mean 0.05"),
    ],
)
def test_bad_settings_are_one_clear_error(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


# pytorch-ood; its KL matching, too, compares with the nearest class among those that were predicted


def test_pytorch_ood_agrees(torchvision_ops) -> None:
    theirs = pytest.importorskip("pytorch_ood.detector")
    train, test = features(200, signed=True), features(60, seed=1, signed=True)
    z, rows = (torch.cat([raw for _, raw in part.chunks()]) for part in (train, test))
    weight, bias = train.head.weight, train.head.bias

    def ours(method: Method) -> torch.Tensor:
        return method.fit(train).score(test)

    she = theirs.SHE(None, train.head.logits).fit_features(z, train.predictions)
    torch.testing.assert_close(ours(METHODS["she"]), -she.predict_features(rows))
    knn = theirs.KNN(None, k=1).fit_features(z, train.predictions)
    wanted = -knn.predict_features(rows).float()
    torch.testing.assert_close(ours(Method(score=Knn(k=1))), wanted, rtol=1e-4, atol=1e-4)
    klm = theirs.KLMatching(None).fit_logits(train.head.logits(z), train.predictions)
    wanted = -klm.predict_logits(test.head.logits(rows))
    torch.testing.assert_close(ours(METHODS["klm"]), wanted, rtol=1e-4, atol=1e-4)
    vim = theirs.ViM(None, 20, weight, bias).fit_features(z, train.predictions)
    torch.testing.assert_close(ours(METHODS["vim"]), -vim.predict_features(rows), rtol=1e-4, atol=1e-3)
