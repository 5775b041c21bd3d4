"""Risk among accepted images against brute force, and the exact test of two verdicts against its definition."""

from __future__ import annotations

from itertools import pairwise, permutations
from math import comb

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from oodshape import InputError
from oodshape.metrics.detection import aurc, mcnemar, risk_coverage


@given(st.lists(st.tuples(st.integers(0, 3), st.booleans()), min_size=1, max_size=6))
def test_the_area_is_the_mean_over_every_order_of_equal_scores(rows: list[tuple[int, bool]]) -> None:
    scores, correct = np.array([float(s) for s, _ in rows]), np.array([c for _, c in rows])
    areas = []
    for order in permutations(range(len(rows))):
        if all(scores[a] >= scores[b] for a, b in pairwise(order)):
            wrong = ~correct[list(order)]
            areas.append(np.mean([wrong[: k + 1].mean() for k in range(len(rows))]))
    assert aurc(scores, correct) == pytest.approx(np.mean(areas))


@given(st.lists(st.tuples(st.floats(-9, 9), st.booleans()), min_size=1, max_size=30))
def test_all_images_have_the_error_of_the_network(rows: list[tuple[float, bool]]) -> None:
    scores, correct = [s for s, _ in rows], [c for _, c in rows]
    coverage, risk = risk_coverage(scores, correct)
    assert (coverage[-1], risk[-1]) == (1.0, pytest.approx(1 - np.mean(correct)))
    best = aurc(np.array(correct, float), correct)
    assert best <= aurc(scores, correct) + 1e-12
    assert aurc(-np.array(correct, float), correct) >= aurc(scores, correct) - 1e-12


def test_mcnemar_is_the_two_sided_sign_test() -> None:
    one = np.array([True] * 9 + [False] * 2 + [True] * 40)
    other = np.array([False] * 9 + [True] * 2 + [True] * 40)
    assert mcnemar(one, other) == pytest.approx(2 * sum(comb(11, k) for k in range(3)) / 2**11)
    assert mcnemar(one, other) == mcnemar(other, one)
    assert mcnemar(one, one) == 1.0


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match="2 truth values"):
        aurc([1.0, 2.0], [True])
    with pytest.raises(InputError, match="2 truth values"):
        aurc([1.0, 2.0], [1, 0])
    with pytest.raises(InputError, match="same images"):
        mcnemar([True], [True, False])
