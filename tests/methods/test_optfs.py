"""OptFS: the closed form under either bound, its grid, its exactness, and the ways to compute it."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from data import arrays, features
from oodshape import METHODS, Features, InputError, auroc
from oodshape.features import kernels
from oodshape.features.training_sums import Sums
from oodshape.methods.detector import Method
from oodshape.methods.shapes.optfs import OptFS, solve_theta
from oodshape.methods.shapes.piecewise import Grid, PiecewiseConstant
from oodshape.methods.training_set import Training
from oracle.shaping import naive_energies, naive_optfs, naive_shape

FLOATS = st.floats(-1e4, 1e4, width=32)


def values_of(data: Features) -> np.ndarray:
    return torch.cat([raw for _, raw in data.chunks()]).double().numpy()


def test_by_hand() -> None:
    # weights 1: the impact of an interval is the sum of the features in it; tail = 0 keeps the largest
    z = np.array([[0.0, 1.5, 2.25, 3.0]], np.float16)
    shape = OptFS(k=3, tail=0.0).fit(Training.of(Features.from_arrays(z, (np.ones((1, 4)), None))))
    np.testing.assert_allclose(shape.edges, [0, 1, 2, 3], atol=1e-6)
    np.testing.assert_allclose(shape.theta, np.array([0, 1.5, 5.25]) / np.sqrt(29.8125) * np.sqrt(3), rtol=1e-6)


KINDS = {
    "signed": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "relu6": lambda z: np.clip(3 * z, 0, 6),
    "bfloat16": lambda z: torch.tensor(z).bfloat16().float().numpy(),
    "quantised": lambda z: np.round(z / 0.0237) * 0.0237,
    "offset": lambda z: z + 100,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "one image": lambda z: z[:1],
    "float16": lambda z: z.astype(np.float16),
    "float16 relu": lambda z: np.maximum(z, 0).astype(np.float16),
}


def theta_of(data: Features, edges: np.ndarray, bound: str) -> np.ndarray:
    """The closed form in float64, by masks over the given edges."""
    z, k = values_of(data), len(edges) - 1
    impact = naive_optfs(z, data.predictions.numpy(), data.head.weight.numpy(), edges, 1.0)
    if bound == "theta":
        return impact * np.sqrt(k)
    energy = naive_energies(z, edges)
    ratio = np.divide(impact, energy, out=np.zeros(k), where=energy > 0)
    return ratio * np.sqrt(energy.sum() / (ratio**2 @ energy))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 100, 1000])
def test_a_fit_is_the_closed_form(kind: str, k: int) -> None:
    """Limits are those of the sorted values to the last bit, theta that of a float64 loop to 1e-6."""
    z, head = arrays(500, signed=True)
    values = KINDS[kind](z)
    data = Features.from_arrays(values if values.dtype == np.float16 else values.astype(np.float32), head)
    for bound in ("theta", "features"):
        recipe = OptFS(k=k, bound=bound)
        shape = recipe.fit(Training.of(data))
        assert np.array_equal(shape.edges, Grid.between(*np.quantile(values_of(data), [0.001, 0.999]), k).edges())
        wanted = theta_of(data, shape.edges, bound)
        np.testing.assert_allclose(shape.theta, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
        if k == 100:  # the stated error of parts
            apart = Method(shape=recipe).fit(Sums.of(data, frozenset())).shape.theta - shape.theta
            assert np.linalg.norm(apart) <= 0.25 * np.linalg.norm(shape.theta)
    if k > 200 and not data.half:
        with pytest.raises(InputError, match="give fit the Features"):
            Method(shape=recipe).fit(Sums.of(data, frozenset()))


@settings(max_examples=60)
@given(
    values=st.lists(st.sampled_from([-2.0, -0.0, 0.0, 0.5]) | FLOATS, min_size=2, max_size=600),
    q=st.floats(0, 1),
    chunk=st.sampled_from([16, 1 << 20]),
)
def test_quantiles_are_those_of_the_sorted_values(values: list[float], q: float, chunk: int) -> None:
    """With atoms, for values that the sampled rows do not show, and in chunks."""
    z = np.repeat(np.array(values, np.float32), 3).reshape(-1, 3)
    data = Features.from_arrays(z, (np.eye(3), np.zeros(3)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oodshape.features.features.CHUNK_BYTES", chunk)
        patch.setattr("oodshape.features.features.SAMPLED_ROWS", 2)
        assert data.quantile(q) == pytest.approx(np.quantile(z.astype(np.float64), q), rel=1e-12, abs=1e-300)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_finite_are_refused(bad: float) -> None:
    z, head = arrays(400, signed=True)
    z[333, 3] = bad
    for bound in ("theta", "features"):
        with pytest.raises(InputError, match="row 333 of the features holds a NaN or infinite value"):
            OptFS(bound=bound).fit(Training.of(Features.from_arrays(z, head)))


def test_the_histogram_of_parts_is_near_the_closed_form(real_features) -> None:
    """What docs/guides/scale.md states: theta within 0.5 %, AUROC within 0.01 points, on real features."""
    for real in real_features:
        jitter = np.random.default_rng(0)
        z = real["train"].astype(np.float32)
        z *= 1 + jitter.uniform(-(2**-11), 2**-11, z.shape).astype(np.float32)
        data = Features.from_arrays(z, real["head"])
        one, two = (Method(shape=OptFS()).fit(train) for train in (Sums.of(data, frozenset()), data))
        gap = np.linalg.norm(one.shape.theta - two.shape.theta) / np.linalg.norm(two.shape.theta)
        assert 0 < gap < 0.005, real["name"]
        inside = Features.from_arrays(real["id"], real["head"])
        for ood in real["ood"].values():
            outside = Features.from_arrays(ood, real["head"])
            a, b = (auroc(d.score(inside), d.score(outside)) for d in (one, two))
            assert abs(a - b) < 1e-4, real["name"]


@settings(max_examples=200)
@given(alpha=FLOATS, width=st.floats(1e-3, 1e4), k=st.integers(1, 300))
@example(alpha=0.1, width=0.1, k=1)  # alpha - step is nearly 0, where the next float is no step at all
@example(alpha=0.3, width=30.0, k=100)
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
    assert torch.equal(shape(z), shape.traced()(z))  # by arithmetic, as in a graph


@settings(max_examples=30)
@given(seed=st.integers(0, 10**6), k=st.integers(1, 150), signed=st.booleans())
def test_compiled_equals_torch_equals_masks(seed: int, k: int, signed: bool) -> None:
    data = features(30, seed=seed, signed=signed, half=True)
    shape = OptFS(k=k).fit(Training.of(data))
    z = torch.from_numpy(arrays(20, seed=seed + 1, signed=signed)[0])
    classes, weight = data.head.logits(z).argmax(dim=1), data.head.weight
    uneven = PiecewiseConstant(shape.edges, shape.theta)  # no grid: plain torch
    assert torch.equal(shape(z), uneven(z))
    wanted = naive_shape(z.numpy().astype(np.float64), shape.edges, shape.theta)
    np.testing.assert_allclose(shape(z).numpy(), wanted, rtol=1e-6)
    torch.testing.assert_close(
        shape.frozen_logits(z, classes, weight), uneven.frozen_logits(z, classes, weight), rtol=1e-5, atol=1e-4
    )


def by_features(data: Features, **more) -> PiecewiseConstant:
    shape = OptFS(bound="features", **more).fit(Training.of(data))
    assert isinstance(shape, PiecewiseConstant)
    return shape


def test_the_bound_on_features_by_hand() -> None:
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
    theta = solve_theta(impact, energy)
    assert theta.astype(float) ** 2 @ energy == pytest.approx(energy.sum(), rel=1e-5)
    assert theta @ impact >= -found.fun * (1 - 1e-5)
    if found.success:
        np.testing.assert_allclose(theta, found.x, atol=2e-2)


def test_an_energy_beyond_float32_counts_as_none() -> None:
    assert solve_theta(np.array([1e-50, 1.0]), np.array([1e-90, 1.0])).tolist() == [0, 1]


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
        (lambda: OptFS(k=0), "k must be at least 1, got 0"),
        (lambda: OptFS(tail=0.7), r"tail must lie in \[0, 0.5\), got 0.7; did you mean 0.007"),
        (lambda: OptFS(norm=0.0), "norm must be positive, got 0"),
        (lambda: OptFS(bound="feature"), "bound must be one of theta, features, got 'feature'"),
        (lambda: OptFS(bound="features", norm=10.0), "norm is the length of theta, which bound='features' leaves free"),
        (lambda: Grid.between(1.0, 1.00001, 1000), "finer than float32; use fewer"),
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
    for name in ("optfs-e", "optfs-f"):
        with pytest.raises(InputError, match="impact 0"):
            METHODS[name].fit(Features.from_arrays(np.eye(3), (np.zeros((3, 3)), np.zeros(3))))


@pytest.mark.parametrize("width", [1, kernels.BLOCK - 1, kernels.BLOCK, kernels.BLOCK + 1, 3 * kernels.BLOCK + 5])
def test_whole_blocks_and_what_is_left_of_a_row_are_the_same(width: int) -> None:
    rng = np.random.default_rng(width)
    z = torch.from_numpy(rng.normal(size=(5, width)).astype(np.float32))
    weight, classes = torch.from_numpy(rng.normal(size=(3, width)).astype(np.float32)), torch.tensor([0, 2, 1, 1, 0])
    grid = Grid.between(-1.5, 1.5, 40)
    shape = PiecewiseConstant(grid.edges(), np.linspace(-1, 2, 40, dtype=np.float32), (grid.origin, grid.scale))
    assert torch.equal(shape(z), shape.traced()(z))
    wanted = (shape.traced()(z).double() * weight[classes].double()).sum(dim=1)
    torch.testing.assert_close(shape.frozen_logits(z, classes, weight).double(), wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, kernels.BLOCK])
def test_a_value_that_is_not_finite_reaches_the_sum(value: float, place: int) -> None:
    z = torch.ones(1, kernels.BLOCK + 1)
    z[0, place] = value
    padded = torch.tensor([0.0, 1.0, 0.0])
    assert not torch.isfinite(kernels.frozen_logits(z, torch.tensor([0]), torch.ones_like(z), (0.0, 1.0), padded))[0]


@pytest.mark.parametrize("method", ["optfs", "optfs-e"])
def test_few_images_and_an_untrained_network_raise_a_warning(method: str) -> None:
    rng = np.random.default_rng(2)
    z, head = rng.random((400, 16), np.float32), (rng.normal(size=(4, 16)), np.zeros(4))
    with pytest.warns(UserWarning, match="theta comes from 5 images only"):
        METHODS[method].fit(Features.from_arrays(z[:5], head))
    with pytest.warns(UserWarning, match="the labels are predicted as by chance"):
        METHODS[method].fit(Features.from_arrays(z, head, labels=rng.integers(4, size=400)))
    with pytest.warns(UserWarning, match="the head gives these features no larger logits than .* in random order"):
        METHODS[method].fit(Features.from_arrays(z, head))
    with warnings.catch_warnings(action="error"):
        METHODS[method].fit(Features.from_arrays(z, head, labels=(z @ head[0].T).argmax(axis=1)))
        METHODS[method].fit(features(100, classes=2))
