"""Sums of parts are those of the whole to 1e-12, where the features are equal: float64 throughout."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from oodshape.features import sum_kernels
from oodshape.features.features import Features
from oodshape.features.moments import Moments
from oodshape.features.statistic import Statistic
from oodshape.features.sums import Sums, together

NAMES = frozenset(Statistic)
WIDTH, CLASSES, IMAGES = 48, 7, 1600


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch, one_thread: None) -> Features:
    """Features that are many enough to be multiplied in float32."""
    monkeypatch.setattr(sum_kernels, "NARROW", 0)
    assert not sum_kernels.exact(IMAGES, WIDTH)
    rng = np.random.default_rng(3)
    z = np.abs(rng.standard_normal((IMAGES, WIDTH))).astype(np.float32)
    head = rng.standard_normal((CLASSES, WIDTH)).astype(np.float32), rng.standard_normal(CLASSES).astype(np.float32)
    labels = rng.integers(-1, CLASSES, IMAGES)
    first = Features.from_arrays(z, head)
    return Features.from_arrays(z, head, labels, first.predictions.numpy(), np.arange(IMAGES))


def apart(found: Moments, wanted: Moments) -> dict[str, float]:
    """How far the sums of each name lie from those wanted, of the largest."""
    assert found.parts.keys() == wanted.parts.keys()
    return {
        name: float(np.abs(found.parts[name].astype(np.float64) - value.astype(np.float64)).max() / np.abs(value).max())
        for name, value in wanted.parts.items()
    }


@pytest.mark.parametrize("parts", [1, 3, 16])
def test_parts_in_any_order_add_up_to_1e_12(whole: Features, parts: int) -> None:
    wanted = Sums.of(whole, NAMES)
    pieces = [Sums.of(whole[rows], NAMES) for rows in np.array_split(np.arange(IMAGES), parts)]
    for order in (pieces, pieces[::-1], pieces[1::2] + pieces[::2]):
        found = together(*order)
        assert found is not None
        assert max(apart(found.held, wanted.held).values()) < 1e-12
        np.testing.assert_array_equal(found.stats.counts, wanted.stats.counts)
        for name in ("sums", "impacts"):
            mine, theirs = getattr(found.stats, name), getattr(wanted.stats, name)
            np.testing.assert_allclose(mine, theirs, rtol=1e-12, atol=1e-12 * np.abs(theirs).max())


def test_sums_of_one_pass_over_features_agree_as_float32_does(whole: Features) -> None:
    """What `Method.fit` takes of features that are at hand, for speed: the bound, and that it is needed."""
    off = apart(Moments.of(whole, NAMES), Moments.of(whole, NAMES, exact=True))
    rounded = {name for name, most in off.items() if most > 1e-12}
    assert rounded <= {"second", "unit_second", "energy", "softmax_sums", "label_surprise"}
    assert rounded >= {"second", "unit_second"}
    assert max(off.values()) < 1e-6


def test_exact_products_are_those_of_numpy(whole: Features) -> None:
    found = Moments.of(whole, frozenset(["second", "unit_second", "energy", "softmax_sums"]), exact=True).parts
    ((_, raw),) = whole.chunks()
    z = raw.numpy().astype(np.float64)
    unit = z / np.linalg.norm(z, axis=1, keepdims=True)
    logits: Any = z @ whole.head.weight.numpy().T.astype(np.float64) + whole.head.bias.numpy().astype(np.float64)
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares = powers / powers.sum(axis=1, keepdims=True)
    by_class = np.zeros((CLASSES, CLASSES))
    np.add.at(by_class, whole.predictions.numpy(), shares)
    wanted = {"second": z.T @ z, "unit_second": unit.T @ unit, "softmax_sums": by_class}
    wanted["energy"] = (np.log(powers.sum(axis=1)) + logits.max(axis=1)).sum()[None]
    for name, theirs in wanted.items():
        np.testing.assert_allclose(found[name], theirs, rtol=1e-12, atol=1e-12 * np.abs(theirs).max(), err_msg=name)
