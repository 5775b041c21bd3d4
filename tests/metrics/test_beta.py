"""Beta quantiles without scipy are those of scipy."""

from __future__ import annotations

import pytest
from scipy.special import betaln
from scipy.stats import beta

from oodshape.metrics.beta import beta_quantile, log_beta


@pytest.mark.parametrize(("k", "n"), [(1, 19), (1, 1), (5, 99), (25, 499), (999, 999), (50_000, 1_000_000)])
@pytest.mark.parametrize("q", [1e-6, 0.005, 0.5, 0.995, 1 - 1e-6])
def test_quantiles_are_those_of_scipy(k: int, n: int, q: float) -> None:
    assert beta_quantile(q, k, n + 1 - k) == pytest.approx(beta.ppf(q, k, n + 1 - k), rel=1e-7)
    assert log_beta(k + 0.5, n + 0.5) == pytest.approx(betaln(k + 0.5, n + 0.5), rel=1e-9)
