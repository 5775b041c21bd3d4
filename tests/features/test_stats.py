"""Laws of the one-pass statistics, and their exactness."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays as array_strategy

from data import arrays, features
from oodshape import METHODS, Features, FeatureStats, InputError
from oodshape.features.moments import Moments
from oodshape.features.training_sums import Sums

HALF = st.floats(-100, 100, width=16)


def exact(z: np.ndarray, head: tuple, edges: np.ndarray) -> np.ndarray:
    z64 = z.astype(np.float64)
    weight = head[0].astype(np.float64)
    w = weight[(z64 @ weight.T + head[1]).argmax(axis=1)]
    return np.array([(z64 * w)[(z64 >= a) & (z64 < b)].sum() for a, b in itertools.pairwise(edges)]) / len(z)


def same(a: FeatureStats, b: FeatureStats) -> None:
    assert (a.head, a.bits, a.n, a.minimum, a.maximum) == (b.head, b.bits, b.n, b.minimum, b.maximum)
    assert np.array_equal(a.keys, b.keys)
    assert np.array_equal(a.counts, b.counts)
    for column in ("sums", "impacts"):
        mine, theirs = getattr(a, column), getattr(b, column)
        assert mine.shape == theirs.shape
        np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12 * np.abs(theirs).max(initial=0.0))


@pytest.mark.parametrize("half", [True, False])
@pytest.mark.parametrize("signed", [True, False])
def test_merge_in_any_order_is_the_whole(half: bool, signed: bool) -> None:
    z, head = arrays(500, signed=signed)
    z = z.astype(np.float16 if half else np.float32)
    whole = FeatureStats.of(Features.from_arrays(z, head))
    a, b, c = (FeatureStats.of(Features.from_arrays(part, head)) for part in np.split(z, [100, 350]))
    for merged in ((a + b) + c, c + (b + a), (b + c) + a):
        same(merged, whole)


@pytest.mark.parametrize("half", [True, False])
def test_counts_sums_and_limits_are_those_of_the_values(half: bool) -> None:
    z, head = arrays(200, signed=True)
    z = z.astype(np.float16 if half else np.float32)
    z[3, 3], z[4, 4] = -0.0, 0.0
    data = Features.from_arrays(z, head)
    stats = FeatureStats.of(data)
    assert stats.counts.sum() == z.size
    assert (stats.minimum, stats.maximum) == (float(z.min()), float(z.max()))
    np.testing.assert_allclose(stats.mean(), z.astype(np.float64).mean(axis=0), rtol=1e-12)
    w = head[0].astype(np.float64)[data.predictions.numpy()]
    np.testing.assert_allclose(stats.impacts.sum(), (w * z.astype(np.float64)).sum(), rtol=1e-12)
    left, right = stats.limits()
    zero = np.flatnonzero((left <= 0) & (right >= 0) & (left >= -1e-30))
    assert stats.counts[zero].sum() == 2  # -0.0 is 0


@settings(max_examples=60)
@given(z=array_strategy(np.float16, (7, 3), elements=HALF), q=st.floats(0, 1))
def test_quantile_of_float16_is_exact(z: np.ndarray, q: float) -> None:
    stats = Features.from_arrays(z, (np.eye(3), np.zeros(3))).stats
    wanted = np.quantile(z.astype(np.float64), q)
    assert stats.quantile(q) == pytest.approx(wanted, rel=1e-12, abs=1e-12)


@settings(max_examples=60)
@given(z=array_strategy(np.float32, (7, 3), elements=st.floats(-1e6, 1e6, width=32)), q=st.floats(0, 1))
def test_quantile_of_float32_is_within_a_bin(z: np.ndarray, q: float) -> None:
    stats = Features.from_arrays(z, (np.eye(3), np.zeros(3))).stats
    low, high = (np.quantile(z.astype(np.float64), q, method=m) for m in ("lower", "higher"))
    width = 2**-11 * max(abs(low), abs(high)) + 1e-30
    assert low - width <= stats.quantile(q) <= high + width
    assert stats.quantile(0) == z.min()
    assert stats.quantile(1) == z.max()


@settings(max_examples=60)
@given(
    z=array_strategy(np.float16, (7, 3), elements=HALF),
    edges=st.lists(st.floats(-100, 100, width=16), min_size=2, max_size=9, unique=True),
)
def test_impact_of_float16_is_exact(z: np.ndarray, edges: list[float]) -> None:
    head = (np.arange(9.0).reshape(3, 3) - 4, np.array([0.5, 0.0, -0.5]))
    got = Features.from_arrays(z, head).stats.impact(np.sort(edges))
    wanted = exact(z, head, np.sort(edges))
    np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-9)


def test_impact_of_float32_adds_up_and_converges() -> None:
    z, head = arrays(2000, signed=True)
    stats = Features.from_arrays(z, head).stats
    edges = np.linspace(-2, 3, 51)
    got, wanted = stats.impact(edges), exact(z, head, edges)
    assert np.linalg.norm(got - wanted) < 5e-3 * np.linalg.norm(wanted)
    assert not np.array_equal(got, wanted)
    whole = stats.impact(np.array([-1e30, 1e30]))
    np.testing.assert_allclose(whole, exact(z, head, np.array([-1e30, 1e30])), rtol=1e-12)


def test_float16_and_float32_parts_add_up() -> None:
    z, head = arrays(200, signed=True)
    half, full = z[:90].astype(np.float16), z[90:]
    mixed = Features.from_arrays(half, head).stats + Features.from_arrays(full, head).stats
    whole = Features.from_arrays(np.concatenate([half.astype(np.float32), full]), head).stats
    same(mixed, whole)


def test_merging_across_heads_is_refused() -> None:
    z, (weight, bias) = arrays(20)
    mine, other = (Features.from_arrays(z, (weight * factor, bias)).stats for factor in (1, 2))
    with pytest.raises(InputError, match=f"{mine.head} and {other.head}"):
        _ = mine + other


def test_methods_fit_from_statistics_alone() -> None:
    data = features(half=True)
    for name, method in METHODS.items():
        if method.wants_proxy:  # it sets a part of the images aside
            with pytest.raises(InputError, match="give fit the Features"):
                method.fit(Sums.of(data, frozenset()))
            continue
        sums = Sums(data.head, data.stats, Moments.of(data, method.needs))
        assert method.fit(sums) == method.fit(data), name
    with pytest.raises(InputError, match="fit takes Features, Sums or TrainingSums, got FeatureStats"):
        METHODS["dice"].fit(data.stats)
    with pytest.raises(InputError, match="belong to head"):
        Sums(type(data.head)(data.head.weight + 1, data.head.bias), data.stats, data.moments(frozenset()))
