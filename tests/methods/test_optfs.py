"""OptFS: the closed form, its grid, its exactness, and the two ways to compute it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from data import arrays, features
from oodshape import METHODS, Features, InputError, auroc
from oodshape.features import kernels
from oodshape.methods.detector import Method
from oodshape.methods.shapes.optfs import OptFS
from oodshape.methods.shapes.piecewise import Grid, PiecewiseConstant
from oracle.shaping import naive_optfs, naive_shape

FLOATS = st.floats(-1e4, 1e4, width=32)


def two_pass(data: Features, k: int, tail: float = 0.001) -> tuple[np.ndarray, np.ndarray]:
    """(edges, theta) from sorted values and masks; edges as the grid puts them between exact quantiles."""
    z = torch.cat([raw for _, raw in data.chunks()]).numpy().astype(np.float64)
    alpha, beta = np.quantile(z, [tail, 1 - tail])
    edges = Grid.between(alpha, beta, k).edges()
    return edges, naive_optfs(z, data.predictions.numpy(), data.head.weight.numpy(), edges, np.sqrt(k))


def test_by_hand() -> None:
    # weights 1: the impact of an interval is the sum of the features in it; tail = 0 keeps the largest
    z = np.array([[0.0, 1.5, 2.25, 3.0]], np.float16)
    shape = OptFS(k=3, tail=0.0).fit(_training(z, np.ones((1, 4))))
    np.testing.assert_allclose(shape.edges, [0, 1, 2, 3], atol=1e-6)
    np.testing.assert_allclose(shape.theta, np.array([0, 1.5, 5.25]) / np.sqrt(29.8125) * np.sqrt(3), rtol=1e-6)


def _training(z: np.ndarray, weight: np.ndarray):
    from oodshape.methods.training import Training

    return Training.of(Features.from_arrays(z, (weight, np.zeros(len(weight)))))


def test_theta_maximises_the_mean_shaped_logit() -> None:
    data = features(half=True)
    best = OptFS(k=20).fit(_training_of(data))
    rng = np.random.default_rng(0)

    def objective(theta: np.ndarray) -> float:
        shape = PiecewiseConstant(best.edges, theta, best.grid)
        return float(mean_v(shape, data).mean())

    top = objective(best.theta)
    for _ in range(50):
        other = best.theta + rng.normal(scale=0.3, size=20)
        other *= np.sqrt(20) / np.linalg.norm(other)
        assert objective(other.astype(np.float32)) < top


def mean_v(shape: PiecewiseConstant, data: Features) -> torch.Tensor:
    z = torch.cat([raw for _, raw in data.chunks()]).float()
    return shape.frozen_logits(z, data.predictions, data.head.weight)


def _training_of(data: Features):
    from oodshape.methods.training import Training

    return Training.of(data)


@pytest.mark.parametrize("signed", [False, True])
@pytest.mark.parametrize("k", [1, 10, 100, 500])
def test_float16_is_exact(signed: bool, k: int) -> None:
    data = features(500, half=True, signed=signed)
    edges, theta = two_pass(data, k)
    shape = OptFS(k=k).fit(_training_of(data))
    assert np.array_equal(shape.edges, edges)
    np.testing.assert_allclose(shape.theta, theta, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("k", "exact"), [(100, True), (201, False), (1000, False)])
def test_second_pass_is_exact(k: int, exact: bool) -> None:
    data = features(500, signed=True)
    edges, theta = two_pass(data, k)
    shape = OptFS(k=k, exact=exact).fit(_training_of(data))
    assert np.array_equal(shape.edges, edges)
    np.testing.assert_allclose(shape.theta, theta, rtol=1e-5, atol=1e-5)
    with pytest.raises(InputError, match="give fit the Features"):
        Method(shape=OptFS(k=k, exact=exact)).fit(data.stats)


def test_one_pass_on_real_float32_features(real_features) -> None:
    """Jittered real features: theta within 0.5 % at K = 100, AUROC within 0.01 points."""
    for real in real_features:
        jitter = np.random.default_rng(0)
        z = real["train"].astype(np.float32)
        z *= 1 + jitter.uniform(-(2**-11), 2**-11, z.shape).astype(np.float32)
        data = Features.from_arrays(z, real["head"])
        one, two = (Method(shape=OptFS(exact=exact)).fit(data) for exact in (False, True))
        gap = np.linalg.norm(one.shape.theta - two.shape.theta) / np.linalg.norm(two.shape.theta)
        assert 0 < gap < 0.005, real["name"]
        inside = Features.from_arrays(real["id"], real["head"])
        for ood in real["ood"].values():
            outside = Features.from_arrays(ood, real["head"])
            a, b = (auroc(d.score(inside), d.score(outside)) for d in (one, two))
            assert abs(a - b) < 1e-4, real["name"]


@settings(max_examples=200)
@given(alpha=FLOATS, width=st.floats(1e-3, 1e4), k=st.integers(1, 300))
def test_edges_are_where_the_arithmetic_changes(alpha: float, width: float, k: int) -> None:
    beta = float(np.float32(alpha + width))
    assume(beta - alpha > 1e-4 * max(abs(alpha), abs(beta)))
    grid = Grid.between(alpha, beta, k)
    edges = grid.edges()
    assert (np.diff(edges) >= 0).all()
    step = (beta - alpha) / k
    np.testing.assert_allclose(edges, alpha + step * np.arange(k + 1), atol=2e-6 * max(abs(alpha), abs(beta)))
    assert edges[0] <= np.float32(alpha)  # alpha is in
    assert edges[-1] <= np.float32(beta)  # beta is out
    theta = np.arange(1, k + 1, dtype=np.float32)
    shape = PiecewiseConstant(edges, theta, (grid.origin, grid.scale))
    infinity = np.float32(np.inf)
    around = np.concatenate([edges, np.nextafter(edges, infinity), np.nextafter(edges, -infinity), [-0.0, 0.0]])
    z = torch.tensor(around.astype(np.float32))[None]
    ones = torch.ones_like(z)
    compiled = kernels.scale_by_theta(z, ones, shape.grid, shape._padded)
    plain = kernels.scale_by_theta_torch(z, ones, shape.tensor("edges", z), shape._padded)
    assert torch.equal(compiled, plain)


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 150), signed=st.booleans())
def test_compiled_equals_torch_equals_masks(seed: int, k: int, signed: bool) -> None:
    data = features(30, seed=seed, signed=signed, half=True)
    shape = OptFS(k=k).fit(_training_of(data))
    z = torch.from_numpy(arrays(20, seed=seed + 1, signed=signed)[0])
    classes, weight = data.head.logits(z).argmax(dim=1), data.head.weight
    uneven = PiecewiseConstant(shape.edges, shape.theta)  # no grid: plain torch
    assert torch.equal(shape(z), uneven(z))
    wanted = naive_shape(z.numpy().astype(np.float64), shape.edges, shape.theta)
    np.testing.assert_allclose(shape(z).numpy(), wanted, rtol=1e-6)
    torch.testing.assert_close(
        shape.frozen_logits(z, classes, weight),
        uneven.frozen_logits(z, classes, weight),
        rtol=1e-5,
        atol=1e-4,
    )


@pytest.mark.parametrize("k", [1, 3, 100])
def test_a_grid_that_begins_at_its_own_step(k: int) -> None:
    """alpha - step is nearly 0, where the next float is no step at all."""
    for alpha in (1e-3, 0.1, 0.3, 7.0):
        edges = Grid.between(alpha, alpha * (k + 1), k).edges()
        np.testing.assert_allclose(edges, alpha * np.arange(1, k + 2), rtol=1e-5)


def test_intervals_finer_than_float32_are_refused() -> None:
    with pytest.raises(InputError, match="finer than float32; use fewer"):
        Grid.between(1.0, 1.00001, 1000)


def test_norm_changes_e_but_not_the_order_of_v() -> None:
    data, test = features(half=True), features(seed=1)
    one, two = (OptFS(norm=norm) for norm in (None, 1000.0))
    head, score = METHODS["optfs-v"].head, METHODS["optfs-v"].score
    v = [Method(shape=s, head=head, score=score).fit(data).score(test) for s in (one, two)]
    torch.testing.assert_close(v[0] * 100, v[1])
    e = [Method(shape=s).fit(data).score(test) for s in (one, two)]
    assert not torch.equal(e[0].argsort(), e[1].argsort())
    assert np.linalg.norm(Method(shape=one).fit(data).shape.theta) == pytest.approx(10)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: OptFS(k=0), "k must be at least 1, got 0"),
        (lambda: OptFS(tail=0.7), r"tail must lie in \[0, 0.5\), got 0.7; did you mean 0.007"),
        (lambda: OptFS(norm=0.0), "norm must be positive, got 0"),
        (lambda: PiecewiseConstant([0, 1], [1, 2]), "2 values of theta need 3 edges, got 2"),
        (lambda: PiecewiseConstant([0, 2, 1], [1, 2]), "must ascend"),
        (lambda: PiecewiseConstant([0, 1, 2], [1, 2], (0.5, 1.0)), "not those of the grid"),
    ],
)
def test_bad_settings(make, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


def test_constant_features_are_refused() -> None:
    with pytest.raises(InputError, match="constant: their 0.001 and 0.999 quantiles are both 2"):
        METHODS["optfs-e"].fit(Features.from_arrays(np.full((9, 3), 2.0), (np.eye(3), np.zeros(3))))
    with pytest.raises(InputError, match="impact 0"):
        METHODS["optfs-e"].fit(Features.from_arrays(np.eye(3), (np.zeros((3, 3)), np.zeros(3))))
