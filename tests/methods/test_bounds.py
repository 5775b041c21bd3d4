"""OptFS with the bound on the features: the closed form, its laws, its limits, and the choice by sign."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from data import arrays, features
from oodshape import METHODS, Features, InputError
from oodshape.features import kernels
from oodshape.methods.shapes.optfs import OptFS, within_energy
from oodshape.methods.shapes.piecewise import Grid, PiecewiseConstant
from oodshape.methods.training import Training
from oracle.shaping import naive_energies

NUMBERS = st.floats(-10, 10, allow_subnormal=False)


def by_features(data: Features, **more) -> PiecewiseConstant:
    shape = OptFS(bound="features", **more).fit(Training.of(data))
    assert isinstance(shape, PiecewiseConstant)
    return shape


def values_of(data: Features) -> np.ndarray:
    return torch.cat([raw for _, raw in data.chunks()]).double().numpy()


def test_by_hand() -> None:
    # one class of weights 1, 1, 1, -1: impacts 0, 1.5, 2.25 - 3; energies 0, 2.25, 5.0625 + 9
    z = np.array([[0.0, 1.5, 2.25, 3.0]], np.float16)
    shape = by_features(Features.from_arrays(z, (np.array([[1.0, 1, 1, -1]]), None)), k=3, tail=0.0)
    np.testing.assert_allclose(shape.edges, [0, 1, 2, 3], atol=1e-6)
    ratio = np.array([0, 1.5 / 2.25, -0.75 / 14.0625])
    scale = np.sqrt(16.3125 / (ratio[1] ** 2 * 2.25 + ratio[2] ** 2 * 14.0625))
    np.testing.assert_allclose(shape.theta, scale * ratio, rtol=1e-6)
    assert not shape.ends
    assert shape(torch.tensor([[-1.0, 4.0]])).tolist() == [[0, 0]]


@settings(max_examples=20)
@given(
    pairs=st.lists(
        st.tuples(st.floats(-1, 1).filter(lambda n: n == 0 or abs(n) > 1e-3), st.floats(0.1, 1)), min_size=2, max_size=6
    )
)
def test_no_other_theta_of_the_same_energy_has_a_larger_impact(pairs: list[tuple[float, float]]) -> None:
    """The constrained problem as it stands, by a general solver."""
    impact, energy = np.array(pairs).T
    if not impact.any():
        return
    found = minimize(
        lambda theta: -theta @ impact,
        np.sign(impact) + 0.1,
        constraints={"type": "eq", "fun": lambda theta: theta**2 @ energy - energy.sum()},
        options={"maxiter": 500, "ftol": 1e-12},
    )
    theta = within_energy(impact, energy)
    assert theta.astype(float) ** 2 @ energy == pytest.approx(energy.sum(), rel=1e-5)
    assert theta @ impact >= -found.fun * (1 - 1e-5)
    if found.success:
        np.testing.assert_allclose(theta, found.x, atol=2e-2)


@settings(max_examples=50)
@given(
    impact=st.lists(NUMBERS.filter(lambda n: n == 0 or abs(n) > 1e-6), min_size=1, max_size=9),
    scale=st.floats(0.01, 100),
    seed=st.integers(0, 99),
)
def test_laws_of_the_closed_form(impact: list[float], scale: float, seed: int) -> None:
    energy = np.random.default_rng(seed).uniform(0.1, 5, len(impact))
    values = np.array(impact)
    if not values.any():
        with pytest.raises(InputError, match="impact 0"):
            within_energy(values, energy)
        return
    theta = within_energy(values, energy)
    assert (np.sign(theta) == np.sign(values)).all()  # the scale is positive, whatever the sum of the impacts
    np.testing.assert_allclose(within_energy(scale * values, energy), theta, rtol=1e-5)
    np.testing.assert_allclose(within_energy(values, scale * energy), theta, rtol=1e-5)
    split = within_energy(np.repeat(values / 2, 2), np.repeat(energy / 2, 2))  # finer intervals, no other f
    np.testing.assert_allclose(split, np.repeat(theta, 2), rtol=1e-5)
    with_empty = within_energy(np.append(values, 0.0), np.append(energy, 0.0))
    np.testing.assert_allclose(with_empty, np.append(theta, 0.0), rtol=1e-6)


def test_an_energy_beyond_float32_counts_as_none() -> None:
    assert within_energy(np.array([1e-50, 1.0]), np.array([1e-90, 1.0])).tolist() == [0, 1]


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_energies_are_those_of_a_mask_per_interval(half: bool, signed: bool) -> None:
    data = features(400, half=half, signed=signed)
    edges = Grid.between(-1.5, 2.5, 40).edges()
    wanted = naive_energies(values_of(data), edges)
    # float32 bins are cut at the edges in proportion to their width: a bin of 2^-11 against an interval of 0.1
    np.testing.assert_allclose(data.stats.energy(edges), wanted, rtol=1e-12 if half else 0.02)
    assert data.stats.energy([-100, 100]).sum() == pytest.approx(
        (values_of(data) ** 2).sum() / 400, rel=1e-12 if half else 2**-11
    )


def test_scaled_features_have_the_same_theta_and_the_density_does_not_matter() -> None:
    z, (weight, bias) = arrays(300, signed=True)
    predictions = (z @ weight.T + bias).argmax(axis=1)
    plain = by_features(Features.from_arrays(z, (weight, bias), predictions=predictions))
    twice = by_features(Features.from_arrays(2 * z, (weight, bias), predictions=predictions))
    np.testing.assert_allclose(plain.theta, twice.theta, rtol=1e-5)
    # weights that do not depend on z: f(z) = theta z is the same everywhere, though most values lie near 0
    rng = np.random.default_rng(0)
    z = np.abs(rng.normal(size=(20_000, 8))).astype(np.float16)
    shape = by_features(Features.from_arrays(z, (np.ones((1, 8)), None)), k=10)
    middles = (shape.edges[1:] + shape.edges[:-1]) / 2
    f = (shape.theta * middles)[2:]
    assert f.std() / f.mean() < 0.1
    assert OptFS(k=10).fit(Training.of(Features.from_arrays(z, (np.ones((1, 8)), None)))).theta.std() > 0.3


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 150))
def test_values_beyond_the_limits_take_the_end_intervals(seed: int, k: int) -> None:
    data = features(30, seed=seed, signed=True, half=True)
    shape = by_features(data, k=k)
    assert shape.ends
    z = torch.from_numpy(3 * arrays(20, seed=seed + 1, signed=True)[0])
    below, above = z < float(shape.edges[0]), z >= float(shape.edges[-1])
    compiled = shape(z)
    torch.testing.assert_close(compiled[below], z[below] * float(shape.theta[0]), rtol=1e-6, atol=0)
    torch.testing.assert_close(compiled[above], z[above] * float(shape.theta[-1]), rtol=1e-6, atol=0)
    assert torch.equal(compiled, PiecewiseConstant(shape.edges, shape.theta, ends=True)(z))  # plain torch, by search
    assert torch.equal(compiled, shape.traced()(z))  # and by arithmetic, as in a graph
    classes, weight = data.head.logits(z).argmax(dim=1), data.head.weight
    torch.testing.assert_close(
        kernels.frozen_logits(z, classes, weight, shape.grid, shape._padded),
        kernels.frozen_logits_torch(z, classes, weight, shape.tensor("edges", z), shape._padded, shape.grid),
        rtol=1e-4,
        atol=1e-3,
    )


@pytest.mark.parametrize("share", [0.005, 0.02])
def test_signed_is_one_definition(share: float) -> None:
    z, head = arrays(1000)
    z[np.random.default_rng(0).uniform(size=z.shape) < share] = -0.1
    data = Features.from_arrays(z, head)
    assert data.stats.signed == (share > 0.01)
    assert by_features(data).ends == data.stats.signed
    chosen = METHODS["optfs"].fit(data)
    beside = METHODS["optfs-f" if data.stats.signed else "optfs-e"].fit(data)
    assert chosen.shape == beside.shape
    assert torch.equal(chosen.score(data), beside.score(data))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptFS(bound="feature"), "bound must be one of theta, features, got 'feature'"),
        (lambda: OptFS(bound="features", norm=10.0), "norm is the length of theta, which bound='features' leaves free"),
    ],
)
def test_bad_settings(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_weights_of_zero_are_refused() -> None:
    with pytest.raises(InputError, match="impact 0"):
        METHODS["optfs-f"].fit(Features.from_arrays(np.eye(3), (np.zeros((3, 3)), np.zeros(3))))
