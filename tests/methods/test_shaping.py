"""Rows computed by hand, and the laws of the single pieces."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as array_strategy

from data import arrays, features
from oodshape import METHODS, Features, InputError, Method, auroc, paper_methods
from oodshape.methods.base import Shape, Shaper
from oodshape.methods.heads import Dice
from oodshape.methods.perturb.none import NoPerturbation
from oodshape.methods.perturb.odin import Odin
from oodshape.methods.scores.logits import Energy, LogSoftmax, MaxLogit, MaxSoftmax
from oodshape.methods.shapes.ash import AshB, AshP, AshRand, AshS, uniform
from oodshape.methods.shapes.clipping import Band, BFAct, Clip, Product, ProductShape, ReAct, SoftClip, VraP
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.shapes.piecewise import PiecewiseConstant
from oodshape.methods.training import Training

ROW = torch.tensor([[-2.0, -0.5, 0.0, 0.5, 1.0, 4.0]])


@pytest.mark.parametrize(
    ("shape", "wanted"),
    [
        (Clip(t=0.75), [-2.0, -0.5, 0.0, 0.5, 0.75, 0.75]),
        (Band(low=0.5, high=2.0), [0, 0, 0, 0.5, 1.0, 2.0]),
        (
            SoftClip(t=1.0, order=2),
            [-2 / 17**0.5, -0.5 / 1.0625**0.5, 0, 0.5 / 1.0625**0.5, 0.5**0.5, 4 / 257**0.5],
        ),
        (PiecewiseConstant([-1, 0, 1], [2, -3]), [0, -1.0, 0, -1.5, 0, 0]),
        (AshP(p=0.5), [0, 0, 0, 0.5, 1.0, 4.0]),
        (AshB(p=0.5), [0, 0, 0, 1.0, 1.0, 1.0]),
        (AshS(p=0.5), (np.array([0, 0, 0, 0.5, 1, 4]) * np.exp(3 / 5.5)).tolist()),
        (ProductShape((Clip(t=0.75), PiecewiseConstant([-1, 0, 1], [2, -3]))), [0, -1.0, 0, -1.5, 0, 0]),
        (ProductShape((Clip(t=0.25), Band(low=0.5, high=2.0))), [0, 0, 0, 0.25, 0.25, 0.125]),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Shape) else "",
)
def test_by_hand(shape: Shape, wanted: list[float]) -> None:
    torch.testing.assert_close(shape(ROW), torch.tensor([wanted], dtype=torch.float32))
    out = torch.full_like(ROW, 9.0)
    torch.testing.assert_close(shape(ROW, out), torch.tensor([wanted], dtype=torch.float32))


def test_product_is_the_product_of_thetas() -> None:
    z = torch.from_numpy(arrays(50, signed=True)[0])
    shapes = (SoftClip(t=1.0, order=2), Clip(t=0.7), PiecewiseConstant([-2, 0, 1, 3], [0.5, 2, 1]))
    thetas = [shape(z) / z for shape in shapes]
    torch.testing.assert_close(ProductShape(shapes)(z), thetas[0] * thetas[1] * thetas[2] * z)


def test_optfs_with_react_is_theta_times_the_clipped_value() -> None:
    data, test = features(half=True, signed=True), features(seed=1, signed=True)
    z = torch.cat([raw for _, raw in test.chunks()])
    training = Training.of(data)
    theta, clip = OptFS().fit(training), ReAct(q=0.9).fit(training)
    shaped = METHODS["optfs-e+react"].fit(data).shape(z)
    torch.testing.assert_close(shaped, theta.scale(z, torch.ones_like(z)) * z.clamp(max=clip.t))
    torch.testing.assert_close(METHODS["optfs-e+react"].fit(data).score(test), Energy()(data.head.logits(shaped)))


@pytest.mark.parametrize("signed", [False, True])
def test_methods_that_do_nothing_are_energy(signed: bool) -> None:
    data, test = features(signed=signed), features(seed=1, signed=signed)
    plain = METHODS["energy"].fit(data).score(test)
    z = torch.cat([raw for _, raw in test.chunks()])
    for shape in (AshP(p=0.0),):
        torch.testing.assert_close(Method(shape=shape).fit(data).score(test), plain)
    above = Clip(t=float(z.max()) + 1)
    assert torch.equal(above(z), z)
    # DICE at p = 0 drops the one smallest contribution and no more
    layer = Method(head=Dice(p=0.0)).fit(data).head.bind(data.head)
    dropped = (layer.weight != data.head.weight).nonzero().tolist()
    contribution = data.head.weight.numpy() * data.stats.mean().astype(np.float32)
    assert dropped == [list(np.unravel_index(contribution.argmin(), contribution.shape))]


@pytest.mark.parametrize("p", [0.3, 0.7, 0.95])
def test_dice_keeps_the_largest_contributions(p: float) -> None:
    data = features(signed=True)
    layer = Method(head=Dice(p=p)).fit(data).head.bind(data.head)
    kept = (layer.weight != 0).double().mean()
    assert float(kept) == pytest.approx(1 - p, abs=1 / layer.weight.numel())
    contribution = data.head.weight.numpy() * data.stats.mean()
    mask = layer.weight.numpy() != 0
    assert contribution[mask].min() > contribution[~mask].max()
    assert torch.equal(layer.bias, data.head.bias)


def test_odin_is_not_max_logit() -> None:
    logits = torch.tensor([[5.0, 5.0, 0.0], [4.9, -5.0, -5.0]])
    assert MaxLogit()(logits).argmax() == 0
    odin = MaxSoftmax(temperature=1000.0)(logits)
    assert odin.argmax() == 1
    margin = logits.amax(dim=1) - logits.mean(dim=1)  # to first order: 1/C + (max - mean) / (C T)
    torch.testing.assert_close(odin, 1 / 3 + margin / 3000, rtol=0, atol=1e-5)


def test_odin_with_a_perturbation_needs_images() -> None:
    detector = Method(perturb=Odin(eps=0.004)).fit(features())
    with pytest.raises(InputError, match=r"perturbs images \(Odin\).*classifier and images"):
        detector.score(features())


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


def test_ash_rand_is_uniform_and_seeded() -> None:
    noise = uniform(100_000, 0).astype(np.float64)
    assert 0 <= noise.min() < 0.001
    assert 0.999 < noise.max() < 1
    assert noise.mean() == pytest.approx(0.5, abs=0.005)
    assert noise.var() == pytest.approx(1 / 12, abs=0.002)
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.02
    z = torch.rand(200, 512)
    shaped = AshRand(p=0.75)(z)
    assert int((shaped > 0).sum()) == 200 * 128
    assert torch.equal(shaped, AshRand(p=0.75)(z))
    assert not torch.equal(shaped, AshRand(p=0.75, seed=1)(z))


def test_ash_rand_does_not_see_the_last_bits() -> None:
    z = torch.rand(200, 512)
    assert torch.equal(AshRand()(z), AshRand()(torch.nextafter(z, torch.tensor(2.0))))


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
        (lambda: BFAct(q=0.1).fit(Training.of(features(signed=True))), "0.1-quantile of the features is -"),
    ],
)
def test_bad_settings_are_one_clear_error(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_absolute_limits_of_vra_p() -> None:
    assert VraP(low=0.5, high=1.0, absolute=True).fit(Training.of(features())) == Band(low=0.5, high=1.0)


NETWORK = "cifar10_densenet101"


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


def test_the_paper_s_settings_keep_the_probability() -> None:
    for name in ("msp", "optfs-msp"):
        assert METHODS[name].score == LogSoftmax()
        for id_set in ("imagenet", "cifar10", "cifar100"):
            assert paper_methods(id_set)[name].score == MaxSoftmax()


def test_people_read_a_probability() -> None:
    assert LogSoftmax().said(float(np.log(0.25))) == "-1.38629 (a probability of 0.25)"
    assert MaxSoftmax().said(0.25) == "0.25"


@pytest.mark.parametrize(("shape", "gain"), [(None, 0.04), (OptFS(), 0.24)], ids=["msp", "optfs-msp"])
def test_no_ties_are_left_on_a_real_network(shape: Shaper | None, gain: float, real_features) -> None:
    (real,) = (each for each in real_features if each["name"] == NETWORK)
    train, inside = (Features.from_arrays(real[part], real["head"]) for part in ("train", "id"))
    outside = Features.from_arrays(real["ood"]["places32"], real["head"])
    slots = {} if shape is None else {"shape": shape}
    plain, log = (Method(score=score, **slots).fit(train) for score in (MaxSoftmax(), LogSoftmax()))
    before, after = plain.score(inside), log.score(inside)
    assert (before == 1).float().mean() > 0.25
    assert len(after.unique()) > 0.99 * len(after)
    gained = auroc(after, log.score(outside)) - auroc(before, plain.score(outside))
    assert 100 * gained > gain
