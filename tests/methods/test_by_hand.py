"""Rows computed by hand, methods that go by labels, the laws of single pieces, and what poor data and settings do."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as array_strategy
from scipy.stats import kstest

from data import arrays, features
from oodshape import METHODS, Features, InputError, Method, paper_methods
from oodshape.features.moments import Moments, Statistic
from oodshape.features.training_sums import Sums
from oodshape.methods.heads import Dice, Lts
from oodshape.methods.perturb.odin import Odin
from oodshape.methods.perturb.step import NoPerturbation
from oodshape.methods.records import RECORDS
from oodshape.methods.scores.class_means import She
from oodshape.methods.scores.decision_boundary import Nci
from oodshape.methods.scores.logits import Gen, LogSoftmax, MaxSoftmax, Tempered
from oodshape.methods.scores.mahalanobis import Mds, MdsPlus, Rmds, RmdsPlus
from oodshape.methods.scores.nearest_neighbours import Knn, NnGuide
from oodshape.methods.scores.openood_variants import ShareKnn
from oodshape.methods.scores.subspace import Neco, Vim
from oodshape.methods.shapes.ash import AshB, AshP, AshRand, AshS, Scale, draw_uniform
from oodshape.methods.shapes.bats_ras import Bats
from oodshape.methods.shapes.clipping import Band, BFAct, Clip, Product, ProductShape, ReAct, SoftClip, VraP
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.methods.slots import Shape
from oodshape.methods.training_set import Training

# two features, two classes, logits = features; classes 0, 0, 1, 1; mean (2, 2)
TRAIN = np.array([[4.0, 0.0], [2.0, 0.0], [0.0, 6.0], [2.0, 2.0 + 2**-10]])
HEAD = (np.eye(2), np.zeros(2))
ROW = np.array([[3.0, 4.0]])  # class 1, energy 4 + log(1 + 1/e)
ENERGY = 4 + np.log1p(np.exp(-1))


def score(method: Method, train: np.ndarray = TRAIN, row: np.ndarray = ROW, labels: list[int] | None = None) -> float:
    fitted = method.fit(Features.from_arrays(train, HEAD, labels=None if labels is None else np.array(labels)))
    return float(fitted.score(Features.from_arrays(row, HEAD))[0])


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


def test_moments_are_refused_across_heads() -> None:
    data = features(50)
    made = Moments.of(data, frozenset(Statistic))
    with pytest.raises(InputError, match="different heads"):
        _ = made + Moments.of(Features.from_arrays(TRAIN, HEAD), frozenset(Statistic))
    with pytest.raises(InputError, match="no statistic is called 'cuonts'; did you mean counts"):
        Moments.of(data, frozenset(["cuonts"]))


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


# pytorch-ood; its KL matching, too, compares with the nearest class among those that were predicted


# logits = features
# class 1
CROSS = np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
TWO = np.concatenate([CROSS + np.array([4, 0]), CROSS + np.array([0, 4])])  # two round classes, scatter 4 within


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
    if name != "temperature":
        torch.testing.assert_close(method.unlabelled().fit(labelled()).score(test), plain)  # told to leave them alone
    z, head = arrays(300)
    some = Features.from_arrays(z, head, labels=np.where(np.arange(300) < 299, 0, -1))
    torch.testing.assert_close(method.fit(some).score(test), plain)  # a label is missing
    far = Features.from_arrays(z, head, labels=np.full(300, 7))
    torch.testing.assert_close(method.fit(far).score(test), plain)  # the network has 7 classes
    assert (method.fit(labelled()).score(test) - plain).abs().max() > 1e-3  # else this test says nothing


@pytest.mark.parametrize("recipe", [She(classes="labels"), Mds(classes="labels"), RmdsPlus(classes="labels")])
def test_labels_that_were_asked_for_are_refused_with_the_reason(recipe) -> None:
    with pytest.raises(InputError, match="300 of 300 training images have no label"):
        Method(score=recipe).fit(features(300))
    with pytest.raises(InputError, match="predicts the label of only 0.0 % .* another order"):
        Method(score=recipe).fit(labelled(order=2, wrong=1000))


@pytest.mark.parametrize("name", ["she", "mds++", "temperature"])
def test_parts_by_label_add_up(name: str) -> None:
    whole, method = labelled(), METHODS[name]
    fitted = method.fit(Sums.of(whole[:120], method.needs) + Sums.of(whole[120:], method.needs))
    test, at_once = features(40, seed=1), method.fit(Sums.of(whole, method.needs))
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
    from_sums = method.fit(Sums.of(train, method.needs))
    assert from_sums.scorer.temperature == pytest.approx(wanted, rel=0.01)


VALUES = torch.tensor([[-2.0, -0.5, 0.0, 0.5, 1.0, 4.0]])


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        (Clip(t=0.75), [-2.0, -0.5, 0.0, 0.5, 0.75, 0.75]),
        (Band(low=0.5, high=2.0), [0, 0, 0, 0.5, 1.0, 2.0]),
        (SoftClip(t=1.0, order=2), [-2 / 17**0.5, -0.5 / 1.0625**0.5, 0, 0.5 / 1.0625**0.5, 0.5**0.5, 4 / 257**0.5]),
        (PiecewiseConstant([-1, 0, 1], [2, -3]), [0, -1.0, 0, -1.5, 0, 0]),
        (AshP(p=0.5), [0, 0, 0, 0.5, 1.0, 4.0]),
        (AshB(p=0.5), [0, 0, 0, 1.0, 1.0, 1.0]),
        (AshS(p=0.5), (np.array([0, 0, 0, 0.5, 1, 4]) * np.exp(3 / 5.5)).tolist()),
        (ProductShape((Clip(t=0.75), PiecewiseConstant([-1, 0, 1], [2, -3]))), [0, -1.0, 0, -1.5, 0, 0]),
        (ProductShape((Clip(t=0.25), Band(low=0.5, high=2.0))), [0, 0, 0, 0.25, 0.25, 0.125]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Shape) else "",
)
def test_shapes_by_hand(shape: Shape, wanted: list[float]) -> None:
    torch.testing.assert_close(shape(VALUES), torch.tensor([wanted], dtype=torch.float32))
    out = torch.full_like(VALUES, 9.0)
    torch.testing.assert_close(shape(VALUES, out), torch.tensor([wanted], dtype=torch.float32))


def test_odin_steps_against_the_gradient() -> None:
    class Line:
        def logits(self, images: torch.Tensor) -> torch.Tensor:
            flat = images.flatten(1)
            return torch.stack([flat @ torch.tensor([1.0, -1.0, 2.0]), torch.zeros(len(flat))], dim=1)

    images = torch.tensor([[[1.0], [0.0], [1.0]], [[-1.0], [0.0], [-1.0]]])[..., None]
    before = images.clone()
    std = paper_methods("cifar10")["odin"].perturb.std
    moved = Odin(eps=0.01, std=std)(Line(), images)
    assert torch.equal(images, before)
    step = 0.01 / torch.tensor(std)
    up = step * torch.tensor([1.0, -1.0, 1.0])
    torch.testing.assert_close((moved - images)[..., 0, 0], torch.stack([up, -up]))
    assert NoPerturbation()(Line(), images) is images
    with pytest.raises(InputError, match="std has 2 values, the images have 3 channels"):
        Odin(eps=0.01, std=(1.0, 2.0))(Line(), images)


def test_ash_rand_is_uniform_and_hangs_on_the_seed_alone() -> None:
    noise = draw_uniform(100_000, 0).astype(np.float64)
    assert kstest(noise, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.02
    z = torch.rand(200, 512)
    assert torch.equal(AshRand()(z), AshRand()(torch.nextafter(z, torch.tensor(2.0))))  # no last bit changes it
    assert not torch.equal(AshRand()(z), AshRand(seed=1)(z))


def test_a_row_that_cancels_stays_finite() -> None:
    z = torch.tensor([[1e-20, 0.0, 0.0, 1000.0], [0.0, 0.0, 0.0, 0.0], [-3.0, -1.0, -2.0, 1e-30]])
    for p in (0.0, 0.25, 0.5, 0.75):
        assert torch.isfinite(AshS(p=p)(z)).all()
    assert torch.isfinite(SoftClip(t=1e-6, order=6)(z * 1e6)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ReAct(q=90), r"q must lie in \(0, 1\), got 90; did you mean 0.9\?"),
        (lambda: ReAct(q=-0.1), r"q must lie in \(0, 1\), got -0.1$"),
        (lambda: BFAct(q=95), "did you mean 0.95"),
        (lambda: BFAct(order=0), "order must lie in 1..6, got 0"),
        (lambda: VraP(low=60, high=95), "did you mean 0.6"),
        (lambda: VraP(low=0.9, high=0.5), "low must be less than high, got 0.9 and 0.5"),
        (lambda: AshS(p=90), r"p must lie in \[0, 1\), got 90; did you mean 0.9\?"),
        (lambda: Dice(p=70), "did you mean 0.7"),
        (lambda: MaxSoftmax(temperature=0), "temperature must be positive, got 0"),
        (lambda: Odin(eps=4), r"eps must lie in \(0, 1\), got 4"),
        (lambda: Product(()), "at least one"),
        (
            lambda: Method(perturb=Odin(eps=0.1)).fit(features()).score(features()),
            r"perturbs images \(Odin\).*classifier",
        ),
        (lambda: Gen(gamma=0), "gamma must be positive, got 0"),
        (lambda: Gen(top=0), "top must be at least 1"),
        (lambda: Knn(k=0), "k must be at least 1, got 0"),
        (lambda: Method(score=Knn(), shape=ReAct()), "Knn reads the features themselves"),
        (lambda: Method(score=Knn(), head=Dice()), "Knn reads the features themselves"),
        (lambda: Vim(dimensions=0), "dimensions must be at least 1"),
        (lambda: Bats(width=0), "width must be positive"),
        (lambda: Scale(p=85), "did you mean 0.85"),
        (lambda: Lts(share=5), "did you mean 0.05"),
        (lambda: Mds(classes="both"), "classes must be one of predicted, labels, auto, got 'both'"),
        (lambda: Rmds(shrinkage="none"), "shrinkage must be one of oas, likelihood, got 'none'"),
        (lambda: Neco(variance=90), "variance"),
        (lambda: ShareKnn(share=50), "share"),
        (lambda: BFAct(q=0.1).fit(Training.of(features(signed=True))), "0.1-quantile of the features is -"),
    ],
)
def test_bad_settings_are_one_clear_error(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@settings(max_examples=100)
@given(array_strategy(np.float32, (5, 4), elements=st.integers(-40, 40).map(float)))
def test_it_is_the_log_of_the_largest_probability(logits: np.ndarray) -> None:
    exact = logits.astype(np.float64)
    above = np.sort(exact - exact.max(axis=1, keepdims=True), axis=1)[:, :-1]  # all but one of the largest
    wanted = -np.log1p(np.exp(above).sum(axis=1))
    np.testing.assert_allclose(LogSoftmax()(torch.from_numpy(logits)).numpy(), wanted, rtol=1e-5, atol=0)


def test_leads_that_are_all_a_probability_of_1_keep_their_order() -> None:
    lead = torch.arange(17.0, 100.0)
    logits = torch.stack([lead, torch.zeros_like(lead), torch.zeros_like(lead)], dim=1)
    assert (MaxSoftmax()(logits).diff() > 0).sum() == 0
    assert (LogSoftmax()(logits).diff() > 0).all()
