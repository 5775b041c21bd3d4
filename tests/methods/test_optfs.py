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
from oracle.shaping import naive_energies, naive_optfs, naive_shape

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


KINDS = {
    "signed": lambda z: z,
    "relu": lambda z: np.maximum(z, 0),
    "relu6": lambda z: np.clip(3 * z, 0, 6),
    "bfloat16": lambda z: torch.tensor(z).bfloat16().float().numpy(),
    "quantised": lambda z: np.round(z / 0.0237) * 0.0237,
    "offset": lambda z: z + 100,
    "sigmoid": lambda z: 1 / (1 + np.exp(-z)),
    "one image": lambda z: z[:1],
}


def theta_of(data: Features, edges: np.ndarray, bound: str) -> np.ndarray:
    """The closed form in float64, by masks over the given edges."""
    z = torch.cat([raw for _, raw in data.chunks()]).numpy().astype(np.float64)
    k = len(edges) - 1
    impact = naive_optfs(z, data.predictions.numpy(), data.head.weight.numpy(), edges, 1.0)
    if bound == "theta":
        return impact * np.sqrt(k)
    energy = naive_energies(z, edges)
    ratio = np.divide(impact, energy, out=np.zeros(k), where=energy > 0)
    return ratio * np.sqrt(energy.sum() / (ratio**2 @ energy))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("k", [1, 100, 1000])
def test_float32_is_the_closed_form(kind: str, k: int) -> None:
    """Limits are those of the sorted values to the last bit, theta that of a float64 loop to 1e-6."""
    z, head = arrays(500, signed=True)
    data = Features.from_arrays(KINDS[kind](z).astype(np.float32), head)
    for bound in ("theta", "features"):
        recipe = OptFS(k=k, bound=bound)
        shape = recipe.fit(_training_of(data))
        assert np.array_equal(shape.edges, two_pass(data, k)[0])
        wanted = theta_of(data, shape.edges, bound)
        np.testing.assert_allclose(shape.theta, wanted, rtol=1e-6, atol=1e-6 * np.abs(wanted).max())
        if k == 100:  # the stated error of parts
            apart = Method(shape=recipe).fit(data.stats, head=data.head).shape.theta - shape.theta
            assert np.linalg.norm(apart) <= 0.25 * np.linalg.norm(shape.theta)
    if k > 200:
        with pytest.raises(InputError, match="give fit the Features"):
            Method(shape=recipe).fit(data.stats)


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
            OptFS(bound=bound).fit(_training_of(Features.from_arrays(z, head)))


def test_the_histogram_of_parts_is_near_the_closed_form(real_features) -> None:
    """What docs/guides/scale.md states: theta within 0.5 %, AUROC within 0.01 points, on real features."""
    for real in real_features:
        jitter = np.random.default_rng(0)
        z = real["train"].astype(np.float32)
        z *= 1 + jitter.uniform(-(2**-11), 2**-11, z.shape).astype(np.float32)
        data = Features.from_arrays(z, real["head"])
        one, two = (Method(shape=OptFS()).fit(train, head=data.head) for train in (data.stats, data))
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


@pytest.mark.parametrize("method", ["optfs", "optfs-e"])
def test_few_images_and_an_untrained_network_raise_a_warning(method: str) -> None:
    rng = np.random.default_rng(0)
    z, head = rng.random((400, 16), np.float32), (rng.normal(size=(4, 16)), np.zeros(4))
    with pytest.warns(UserWarning, match="theta comes from 5 images only"):
        METHODS[method].fit(Features.from_arrays(z[:5], head))
    with pytest.warns(UserWarning, match="the labels are predicted as by chance"):
        METHODS[method].fit(Features.from_arrays(z, head, labels=rng.integers(4, size=400)))
    METHODS[method].fit(Features.from_arrays(z, head, labels=(z @ head[0].T).argmax(axis=1)))
